package viewer_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/cubeplexai/cubepod/desktopctl/viewer"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// start runs a program until the test ends.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM) // x11vnc gives its shared memory back
		late := time.AfterFunc(testutil.Patience, func() { cmd.Process.Kill() })
		defer late.Stop()
		cmd.Wait()
	})
}

// startDesktop runs an empty display of the given size and a VNC server for
// it, and gives the way to the latter.
func startDesktop(t *testing.T, size string) func(context.Context) (net.Conn, error) {
	t.Helper()
	xvfb, x11vnc := testutil.NeedProgram(t, "Xvfb"), testutil.NeedProgram(t, "x11vnc")

	// Xvfb takes a free display and tells its number when it is ready.
	ready, number, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	x := exec.Command(xvfb, "-displayfd", "3", "-screen", "0", size, "-nolisten", "tcp")
	x.ExtraFiles = []*os.File{number}
	start(t, x)
	number.Close()
	line, err := bufio.NewReader(ready).ReadString('\n')
	if err != nil {
		t.Fatalf("Xvfb names no display: %v", err)
	}

	socket := filepath.Join(t.TempDir(), "vnc.sock")
	// x11vnc walks every file descriptor it may have, at each connection.
	start(t, exec.Command("/bin/sh", "-c", `ulimit -n 256 && exec "$@"`, "sh", x11vnc,
		"-display", ":"+strings.TrimSpace(line), "-unixsock", socket, "-rfbport", "0", "-rfbportv6", "0", "-no6",
		"-norc", "-forever", "-shared", "-nopw", "-quiet"))
	rfb := viewer.Dial(socket)
	testutil.Eventually(t, "the VNC server greets", func() bool {
		c, err := rfb(t.Context())
		if err != nil {
			return false
		}
		defer c.Close()
		_, err = io.ReadFull(c, make([]byte, 12))
		return err == nil
	})
	return rfb
}

// rfbPage is a page's side of RFB.
type rfbPage struct {
	t *testing.T
	net.Conn
}

func (p rfbPage) read(n int) []byte {
	p.t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(p, b); err != nil {
		p.t.Fatal(err)
	}
	return b
}

func (p rfbPage) write(b ...byte) {
	p.t.Helper()
	if _, err := p.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

// login goes as far as the server's word on its screen, which it gives.
func (p rfbPage) login() (w, h int) {
	p.t.Helper()
	if v := string(p.read(12)); v != "RFB 003.008\n" {
		p.t.Fatalf("the server greets %q", v)
	}
	p.write([]byte("RFB 003.008\n")...)
	p.read(int(p.read(1)[0])) // the ways to log in; 1 is none
	p.write(1)
	if result := binary.BigEndian.Uint32(p.read(4)); result != 0 {
		p.t.Fatalf("login: %d", result)
	}
	p.write(1) // shared
	size := p.read(4)
	p.read(16)                                      // pixel format
	p.read(int(binary.BigEndian.Uint32(p.read(4)))) // name
	return int(binary.BigEndian.Uint16(size)), int(binary.BigEndian.Uint16(size[2:]))
}

// A real VNC server gets as far as its first screen through the relay.
func TestX11VNC(t *testing.T) {
	srv, _ := serve(t, viewer.Options{RFB: startDesktop(t, "320x200x24")})
	page := rfbPage{t, websocket.NetConn(t.Context(), dial(t, srv, &websocket.DialOptions{Subprotocols: []string{"binary"}}), websocket.MessageBinary)}
	if w, h := page.login(); w != 320 || h != 200 {
		t.Errorf("the screen is %dx%d, want 320x200", w, h)
	}
	page.write(2, 0, 0, 1, 0, 0, 0, 0)               // raw encoding only
	page.write(3, 0, 0, 0, 0, 0, 1, 320-256, 0, 200) // the whole screen
	if head := page.read(4); head[0] != 0 || binary.BigEndian.Uint16(head[2:]) == 0 {
		t.Fatalf("no update but %v", head)
	}
	rect := page.read(12)
	size := int(binary.BigEndian.Uint16(rect[4:])) * int(binary.BigEndian.Uint16(rect[6:])) * 4
	if size == 0 {
		t.Fatal("the update is empty")
	}
	page.read(size)
}

// More viewers than the server's queue has room for may come at once: each gets
// in.
func TestManyViewersAtOnce(t *testing.T) {
	srv, _ := serve(t, viewer.Options{RFB: startDesktop(t, "320x200x24")})
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	var together sync.WaitGroup
	pages := make([]net.Conn, 60)
	for i := range pages {
		together.Go(func() {
			c, _, err := websocket.Dial(ctx, srv.URL+"/websockify", nil)
			if err != nil {
				t.Errorf("viewer %d: %v", i, err)
				return
			}
			pages[i] = websocket.NetConn(ctx, c, websocket.MessageBinary)
		})
	}
	together.Wait()
	for i, page := range pages {
		if page == nil {
			continue
		}
		defer page.Close()
		if w, _ := (rfbPage{t, page}).login(); w != 320 {
			t.Errorf("viewer %d: the screen is %d wide", i, w)
		}
	}
}
