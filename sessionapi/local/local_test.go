package local_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi"
	"github.com/cubeplexai/cubepod/sessionapi/local"
	"github.com/cubeplexai/cubepod/sessionapi/runtimetest"
)

func TestMain(m *testing.M) {
	runtimetest.ActAsPodd()
	goleak.VerifyTestMain(m)
}

// dataDir is a t.TempDir with a short name: Unix sockets go into it.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cubepod-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// standIn makes a guest directory with this test binary as podd.
func standIn(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	copyFile(t, self, filepath.Join(dir, "guest", "podd"))
	return dir
}

// realPodd makes a guest directory with the real podd.
func realPodd(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "guest", "podd"), "../../podd").CombinedOutput()
	if err != nil {
		testutil.Skip(t, "podd cannot be built here: "+string(out))
	}
	return dir
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// open gives a Runtime that is closed when t ends.
func open(t *testing.T, opts local.Options) *local.Runtime {
	t.Helper()
	if opts.Log == nil {
		opts.Log = zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))
	}
	rt, err := local.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close() })
	return rt
}

// newRuntime gives a Runtime over an empty data directory, or skips t on a
// machine that cannot run sandboxes.
func newRuntime(t *testing.T, guestDir string) *local.Runtime {
	t.Helper()
	return usable(t, open(t, local.Options{Data: dataDir(t), GuestDir: guestDir}))
}

func usable(t *testing.T, rt *local.Runtime) *local.Runtime {
	t.Helper()
	if err := rt.Check(t.Context()); err != nil {
		testutil.Skip(t, err.Error())
	}
	return rt
}

func TestRuntime(t *testing.T) {
	guestDir := standIn(t)
	runtimetest.Run(t, func(t *testing.T) sessionapi.Runtime { return newRuntime(t, guestDir) })
}

func TestRuntimeOffline(t *testing.T) {
	guestDir := standIn(t)
	runtimetest.Run(t, func(t *testing.T) sessionapi.Runtime {
		return usable(t, open(t, local.Options{Data: dataDir(t), GuestDir: guestDir, Offline: true}))
	})
}

func TestRuntimeWithPodd(t *testing.T) {
	if testing.Short() {
		testutil.Skip(t, "builds podd")
	}
	guestDir := realPodd(t)
	runtimetest.Run(t, func(t *testing.T) sessionapi.Runtime { return newRuntime(t, guestDir) })
}
