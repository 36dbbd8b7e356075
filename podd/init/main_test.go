package main_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/podd/cgroup"
	"go.uber.org/goleak"
)

// bin holds podd and podd-init.
var bin string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "podd-init-bin-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		panic(err)
	}
	bin = dir
	for name, source := range map[string]string{"podd": "..", "podd-init": "."} {
		build := exec.Command("go", "build", "-o", filepath.Join(dir, name), source)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// guest is a podd-init that is process 1 of its own namespaces.
type guest struct {
	*poddapi.Client
	cmd *exec.Cmd
	log *logFile
	rt  *http.Transport
}

// logFile is written by the guest and read by the test.
type logFile struct {
	mu sync.Mutex // guards the field below
	b  bytes.Buffer
}

func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logFile) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs podd-init, by way of wrapper, with podd's files in dir.
func start(t *testing.T, dir string, env []string, wrapper ...string) *guest {
	t.Helper()
	testutil.NeedRoot(t)
	socket := filepath.Join(dir, "podd.sock")
	args := append([]string{"/bin/sh", "-c", `mount --make-rprivate / && mount -t proc proc /proc && exec "$0" "$@"`}, wrapper...)
	args = append(args, filepath.Join(bin, "podd-init"), "--addr", "unix:"+socket, "--workdir", "/", "--state-dir", filepath.Join(dir, "state"))
	g := &guest{cmd: exec.Command(args[0], args[1:]...), log: new(logFile)}
	g.cmd.Env = append(os.Environ(), env...)
	g.cmd.Stderr = g.log
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g.rt = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	g.Client = poddapi.NewClient(g.rt, "")
	t.Cleanup(func() {
		g.end(syscall.SIGTERM)
		sweep(filepath.Join(dir, "state"))
	})
	g.up(t)
	return g
}

// sweep removes the control groups of a podd that had no time to do so. Those
// of a container go with it.
func sweep(state string) {
	data, _ := os.ReadFile(filepath.Join(state, "next")) // without it there were none
	var nonce string
	fmt.Sscanf(string(data), "%d %s", new(int), &nonce)
	if tree, err := cgroup.Open("podd-" + nonce); err == nil {
		tree.Close()
	}
}

func (g *guest) up(t *testing.T) {
	t.Helper()
	testutil.Eventually(t, "podd is up", func() bool {
		_, err := g.Health(t.Context())
		return err == nil
	})
}

// end sends a signal, waits for the guest's end and gives its exit status.
func (g *guest) end(sig syscall.Signal) int {
	if g.cmd.ProcessState == nil {
		g.rt.CloseIdleConnections()
		g.cmd.Process.Signal(sig)
		g.cmd.Wait() // the status is read below
	}
	return g.cmd.ProcessState.ExitCode()
}

func (g *guest) run(t *testing.T, command string) poddapi.RunResponse {
	t.Helper()
	root := uint32(0)
	r, err := g.Run(t.Context(), poddapi.RunRequest{Command: command, UID: &root})
	if err != nil {
		t.Fatalf("%v\n%s", err, g.log)
	}
	return r
}

func TestHelp(t *testing.T) {
	out, err := exec.Command(bin+"/podd-init", "--help").Output()
	if err != nil || !strings.Contains(string(out), "CUBEPOD_ROOTFS_UPPER") || !strings.Contains(string(out), "copy DIR") {
		t.Errorf("got %s, %v", out, err)
	}
}
