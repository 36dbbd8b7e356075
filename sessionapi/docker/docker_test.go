package docker_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi"
	"github.com/cubeplexai/cubepod/sessionapi/docker"
	"github.com/cubeplexai/cubepod/sessionapi/runtimetest"
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "guest")
	if err != nil {
		panic(err)
	}
	builds.dir = dir
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// network is one for tests, so that they do not meet with sandboxes that run
// on this machine.
const network = "cubepodtest"

// guestDir makes a guest directory with the real programs, or gives the one
// that the environment names.
func guestDir(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("CUBEPOD_TEST_GUEST_DIR"); dir != "" {
		return dir
	}
	builds.Do(func() { builds.err = build(builds.dir) })
	if builds.err != nil {
		testutil.Skip(t, builds.err.Error())
	}
	return builds.dir
}

// builds are the guest's programs, built once.
var builds struct {
	sync.Once
	dir string
	err error
}

func build(dir string) error {
	for name, pkg := range map[string]string{"podd": "../../podd", "podd-init": "../../podd/init"} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "guest", name), pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s cannot be built here: %s", name, out)
		}
	}
	return nil
}

// newRuntime gives a Runtime, or skips t where there is no engine.
func newRuntime(t *testing.T, opts docker.Options) *docker.Runtime {
	t.Helper()
	runtimetest.NeedDocker(t)
	opts.Network = network
	opts.Log = zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))
	rt, err := docker.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close() })
	return rt
}

// engine runs the docker command.
func engine(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("docker", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("docker %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestRuntime(t *testing.T) {
	dir := guestDir(t)
	runtimetest.Run(t, func(t *testing.T) sessionapi.Runtime { return newRuntime(t, docker.Options{GuestDir: dir}) })
}
