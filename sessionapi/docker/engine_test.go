package docker_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi"
	"github.com/cubeplexai/cubepod/sessionapi/docker"
	"github.com/cubeplexai/cubepod/sessionapi/runtimetest"
)

// TestEngineRestart restarts an engine of the test's own.
func TestEngineRestart(t *testing.T) {
	runtimetest.NeedDocker(t)
	testutil.NeedProgram(t, "dockerd")
	if testing.Short() {
		testutil.Skip(t, "starts an engine")
	}
	// An engine sets up the bridges and the firewall of its host.
	t.Setenv("CUBEPOD_TEST_GUEST_DIR", guestDir(t))
	if !testutil.InOwnNetwork(t) {
		return
	}
	d := newEngine(t)

	rt, err := docker.New(docker.Options{GuestDir: guestDir(t), Network: "cubepodown"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close() })
	var specs []sessionapi.Spec
	for range 3 {
		spec := runtimetest.NewSpec()
		runtimetest.Start(t, rt, spec)
		specs = append(specs, spec)
	}
	paused := specs[2]
	if err := rt.Stop(t.Context(), paused.ID); err != nil {
		t.Fatal(err)
	}
	d.stop()
	if err := rt.Check(t.Context()); err == nil {
		t.Error("an engine that is down answers")
	}
	if _, err := rt.Inspect(t.Context(), specs[0].ID); err == nil || strings.Contains(err.Error(), "no sandbox") {
		t.Errorf("inspect without an engine: %v", err)
	}
	d.start(t)
	for _, spec := range specs[:2] {
		testutil.Eventually(t, "the sandbox runs again", func() bool {
			st, err := rt.Inspect(t.Context(), spec.ID)
			return err == nil && st.Running && st.Incarnation == 1 &&
				runtimetest.Dial(rt, st.Handle, spec.FullToken).Health(t.Context()) == nil
		})
	}
	if st, err := rt.Inspect(t.Context(), paused.ID); err != nil || st.Running {
		t.Errorf("the stopped sandbox: %+v, %v", st, err)
	}
}

// ownEngine is a dockerd of the test.
type ownEngine struct {
	dir  string
	cmd  *exec.Cmd
	done chan struct{}
}

// newEngine starts an engine that has the tests' image, and points this program
// to it. It ends with t. It is for tests in a network of their own.
func newEngine(t *testing.T) *ownEngine {
	t.Helper()
	dir, err := os.MkdirTemp("", "dockerd") // a socket's path has 107 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	image := filepath.Join(dir, "image.tar")
	engine(t, "save", "-o", image, runtimetest.Image)
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(dir, "docker.sock"))
	d := &ownEngine{dir: dir}
	t.Cleanup(d.stop)
	d.start(t)
	engine(t, "load", "-i", image)
	return d
}

func (d *ownEngine) start(t *testing.T) {
	t.Helper()
	dir := d.dir
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	d.done = make(chan struct{})
	d.cmd = exec.Command("dockerd", "--host", "unix://"+filepath.Join(dir, "docker.sock"), "--data-root", filepath.Join(dir, "data"),
		"--exec-root", filepath.Join(dir, "exec"), "--pidfile", filepath.Join(dir, "pid"), "--bridge", "none")
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(d.done)
		d.cmd.Wait() // its log says more than its status
	}()
	testutil.Eventually(t, "the engine answers", func() bool {
		select {
		case <-d.done:
			out, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Fatalf("dockerd ended: %s", out)
		default:
		}
		return exec.Command("docker", "version").Run() == nil
	})
}

func (d *ownEngine) stop() {
	d.cmd.Process.Signal(syscall.SIGTERM) // one that ended is as good
	<-d.done
}
