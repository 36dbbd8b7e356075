package x11_test

import (
	"context"
	"image"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/desktopctl/boxtest"
	"github.com/cubeplexai/cubepod/desktopctl/x11"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

const display = ":99"

func TestServer(t *testing.T) {
	xvfb := testutil.NeedProgram(t, "Xvfb")
	openbox := testutil.NeedProgram(t, "openbox")
	if !boxtest.Enter(t) {
		return
	}
	if _, err := x11.Dial(t.Context(), display); err == nil {
		t.Fatal("a server before it was started")
	}
	if err := os.Mkdir(filepath.Dir(x11.SocketPath(display)), 0o777); err != nil {
		t.Fatal(err)
	}
	server := exec.Command(xvfb, display, "-screen", "0", "1600x1200x24", "-nolisten", "tcp", "-noreset")
	run(t, server)
	var c *x11.Conn
	testutil.Eventually(t, "the server's answer", func() (ok bool) {
		var err error
		c, err = x11.Dial(t.Context(), display)
		return err == nil
	})
	defer c.Close()
	if pid := c.ServerPid(); pid != server.Process.Pid {
		t.Errorf("server pid %d, want %d", pid, server.Process.Pid)
	}
	if w, h, d := c.Size(); w != 1600 || h != 1200 || d != 24 {
		t.Errorf("size %dx%dx%d", w, h, d)
	}

	sizes := []image.Point{{800, 600}, {1600, 1200}, {320, 200}, {1366, 768}, {800, 600}, {800, 600}}
	for _, want := range sizes {
		if err := c.SetSize(want.X, want.Y); err != nil {
			t.Errorf("resize: %v", err)
			continue
		}
		other, err := x11.Dial(t.Context(), display)
		if err != nil {
			t.Fatal(err)
		}
		if w, h, _ := other.Size(); w != want.X || h != want.Y {
			t.Errorf("after a resize to %v a new client sees %dx%d", want, w, h)
		}
		img, err := other.Image()
		if err != nil || img.Bounds().Size() != want {
			t.Errorf("image: %v, %v", img.Bounds(), err)
		}
		other.Close()
	}
	if err := c.SetSize(1601, 1200); err == nil {
		t.Error("a screen larger than the server's memory")
	}
	if err := c.SetSize(1024, 768); err != nil {
		t.Errorf("resize after a failure: %v", err)
	}

	if ok, err := c.HasWindowManager(); ok || err != nil {
		t.Errorf("window manager before its start: %v, %v", ok, err)
	}
	manager := exec.Command(openbox, "--sm-disable")
	manager.Env = append(os.Environ(), "DISPLAY="+display)
	run(t, manager)
	has := func() bool {
		ok, err := c.HasWindowManager()
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	patient, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	waiter, err := x11.Dial(patient, display)
	if err != nil {
		t.Fatal(err)
	}
	defer waiter.Close()
	if err := waiter.AwaitWindowManager(); err != nil || !has() {
		t.Errorf("wait for the window manager: %v; it is there: %v", err, has())
	}
	manager.Process.Kill()
	testutil.Eventually(t, "none again", func() bool { return !has() })
}

func run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
}

func TestSilentServer(t *testing.T) {
	if !boxtest.Enter(t) {
		return
	}
	if err := os.Mkdir(filepath.Dir(x11.SocketPath(display)), 0o777); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", x11.SocketPath(display))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := x11.Dial(ctx, display); err == nil {
		t.Error("a server that says nothing answered")
	}
	if _, err := x11.Dial(t.Context(), "host:0"); err == nil {
		t.Error("a display that is not local")
	}
}
