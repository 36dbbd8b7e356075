package testutil

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Redis is a real redis-server of one test, on a Unix socket.
type Redis struct {
	// URL is what CubePod's --redis takes.
	URL string

	dir string
	cmd *exec.Cmd
}

// StartRedis starts a redis-server that ends with t. Its data is in a
// directory of its own, append-only, so that Stop and Start keep it.
func StartRedis(t testing.TB) *Redis {
	t.Helper()
	NeedProgram(t, "redis-server")
	// Not t.TempDir: a socket's path has 107 bytes at most.
	dir, err := os.MkdirTemp("", "redis")
	if err != nil {
		t.Fatal(err)
	}
	r := &Redis{URL: "unix://" + filepath.Join(dir, "redis.sock"), dir: dir}
	t.Cleanup(func() {
		r.Stop(t)
		os.RemoveAll(dir)
	})
	r.Start(t)
	return r
}

// Start starts the server again after Stop.
func (r *Redis) Start(t testing.TB) {
	t.Helper()
	socket := filepath.Join(r.dir, "redis.sock")
	var log bytes.Buffer
	r.cmd = exec.Command("redis-server", "--port", "0", "--unixsocket", socket, "--dir", r.dir,
		"--appendonly", "yes", "--appendfsync", "always", "--save", "")
	r.cmd.Stdout, r.cmd.Stderr = &log, &log
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C at the terminal is for the test
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "redis-server answers", func() bool {
		c, err := new(net.Dialer).DialContext(context.Background(), "unix", socket)
		if err != nil {
			return false
		}
		defer c.Close()
		// A server that still loads its data answers PING with an error.
		buf := make([]byte, 7)
		_, err = c.Write([]byte("PING\r\n"))
		if err == nil {
			_, err = c.Read(buf)
		}
		return err == nil && string(buf) == "+PONG\r\n"
	})
}

// Stop ends the server as an operator would; its data stays.
func (r *Redis) Stop(t testing.TB) {
	t.Helper()
	if r.cmd == nil {
		return
	}
	r.cmd.Process.Signal(syscall.SIGTERM)
	r.cmd.Wait() // its exit status does not matter
	r.cmd = nil
}
