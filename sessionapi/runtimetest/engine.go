package runtimetest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

// Engine is a dockerd of a test.
type Engine struct {
	// Socket is where it listens.
	Socket string

	dir  string
	cmd  *exec.Cmd
	done chan struct{}
}

// StartEngine starts an engine that has these images of the machine's one, and
// sets DOCKER_HOST to it. It ends with t. It is for tests in a network of their
// own, see [testutil.InOwnNetwork]: an engine sets up bridges and a firewall,
// and one without a bridge even removes another one's.
func StartEngine(t *testing.T, images ...string) *Engine {
	t.Helper()
	dir, err := os.MkdirTemp("", "dockerd") // a socket's path has 107 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(unmountBelow(dir), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	archive := filepath.Join(dir, "images.tar")
	run(t, "docker", append([]string{"save", "-o", archive}, images...)...)
	e := &Engine{Socket: filepath.Join(dir, "docker.sock"), dir: dir}
	t.Setenv("DOCKER_HOST", "unix://"+e.Socket)
	t.Cleanup(e.Stop)
	e.Start(t)
	run(t, "docker", "load", "-i", archive)
	if err := os.Remove(archive); err != nil {
		t.Fatal(err)
	}
	return e
}

// Start starts the engine once more, with all it had, and returns when it
// answers.
func (e *Engine) Start(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(e.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	e.done = make(chan struct{})
	e.cmd = exec.Command("dockerd", "--host", "unix://"+e.Socket, "--data-root", filepath.Join(e.dir, "data"),
		"--exec-root", filepath.Join(e.dir, "exec"), "--pidfile", filepath.Join(e.dir, "pid"))
	e.cmd.Stdout, e.cmd.Stderr = log, log
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(e.done)
		e.cmd.Wait() // its log says more than its status
	}()
	testutil.Eventually(t, "the engine answers", func() bool {
		select {
		case <-e.done:
			out, _ := os.ReadFile(filepath.Join(e.dir, "log"))
			t.Fatalf("dockerd ended: %s", out)
		default:
		}
		return exec.Command("docker", "version").Run() == nil
	})
}

// Stop ends the engine, and containers that do not outlive one.
func (e *Engine) Stop() {
	e.cmd.Process.Signal(syscall.SIGTERM) // one that ended is as good
	<-e.done
}

// unmountBelow takes away the mounts that an engine leaves: that of its network
// namespace, which would live on by it.
func unmountBelow(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var errs []error
	for line := range strings.Lines(string(mounts)) {
		if at := strings.Fields(line)[4]; strings.HasPrefix(at, dir+"/") {
			errs = append(errs, syscall.Unmount(at, syscall.MNT_DETACH))
		}
	}
	return errors.Join(errs...)
}
