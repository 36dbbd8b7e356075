package viewer_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

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
		cmd.Process.Kill()
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

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	_, port, _ := net.SplitHostPort(addr)
	// x11vnc walks every file descriptor it may have, at each connection.
	start(t, exec.Command("/bin/sh", "-c", `ulimit -n 256 && exec "$@"`, "sh", x11vnc,
		"-display", ":"+strings.TrimSpace(line), "-rfbport", port, "-localhost", "-no6",
		"-forever", "-shared", "-nopw", "-quiet"))
	rfb := func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}
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

// A real VNC server gets as far as its first screen through the relay.
func TestX11VNC(t *testing.T) {
	srv, _ := serve(t, viewer.Options{RFB: startDesktop(t, "320x200x24")})
	page := dial(t, srv, &websocket.DialOptions{Subprotocols: []string{"binary"}})
	rfb := websocket.NetConn(t.Context(), page, websocket.MessageBinary)
	read := func(n int) []byte {
		t.Helper()
		p := make([]byte, n)
		if _, err := io.ReadFull(rfb, p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	write := func(p ...byte) {
		t.Helper()
		if _, err := rfb.Write(p); err != nil {
			t.Fatal(err)
		}
	}

	if v := string(read(12)); v != "RFB 003.008\n" {
		t.Fatalf("the server greets %q", v)
	}
	write([]byte("RFB 003.008\n")...)
	read(int(read(1)[0])) // the ways to log in; 1 is none
	write(1)
	if result := binary.BigEndian.Uint32(read(4)); result != 0 {
		t.Fatalf("login: %d", result)
	}
	write(1) // shared
	w, h := binary.BigEndian.Uint16(read(2)), binary.BigEndian.Uint16(read(2))
	if w != 320 || h != 200 {
		t.Errorf("the screen is %dx%d, want 320x200", w, h)
	}
	read(16)                                    // pixel format
	read(int(binary.BigEndian.Uint32(read(4)))) // name

	write(2, 0, 0, 1, 0, 0, 0, 0)               // raw encoding only
	write(3, 0, 0, 0, 0, 0, 1, 320-256, 0, 200) // the whole screen
	if head := read(4); head[0] != 0 || binary.BigEndian.Uint16(head[2:]) == 0 {
		t.Fatalf("no update but %v", head)
	}
	rect := read(12)
	size := int(binary.BigEndian.Uint16(rect[4:])) * int(binary.BigEndian.Uint16(rect[6:])) * 4
	if size == 0 {
		t.Fatal("the update is empty")
	}
	read(size)
}
