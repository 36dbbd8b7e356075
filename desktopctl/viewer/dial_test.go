package viewer_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/cubeplexai/cubepod/desktopctl/viewer"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// The server hears the viewer's version once, and at once: before the viewer
// has said a word, and not again when it does, in whatever pieces.
func TestDialSpeaksFirst(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "vnc.sock")
	for name, pieces := range map[string][]string{
		"whole":    {"RFB 003.008\n", "\x01"},
		"together": {"RFB 003.008\n\x01"},
		"pieces":   {"RFB ", "003.008\n\x01"},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := connect(t, socket)
			server := bufio.NewReader(far)
			if said, err := server.ReadString('\n'); err != nil || said != "RFB 003.008\n" {
				t.Fatalf("the server hears %q, %v", said, err)
			}
			for _, p := range pieces {
				if n, err := io.WriteString(near, p); n != len(p) || err != nil {
					t.Fatalf("write %q: %d, %v", p, n, err)
				}
			}
			near.Close()
			if rest, err := io.ReadAll(server); err != nil || string(rest) != "\x01" {
				t.Errorf("the server hears %q, %v, want what came after the version", rest, err)
			}
		})
	}
	t.Run("another version", func(t *testing.T) {
		near, _ := connect(t, socket)
		if _, err := io.WriteString(near, "RFB 003.003\n"); err == nil {
			t.Error("a viewer of another version goes on")
		}
	})
}

// A server that was told the version early goes on early; the viewer gets one
// step at a time all the same.
func TestDialKeepsStep(t *testing.T) {
	near, far := connect(t, filepath.Join(t.TempDir(), "vnc.sock"))
	if _, err := io.WriteString(far, "RFB 003.008\n\x01\x01"); err != nil {
		t.Fatal(err)
	}
	banner := make([]byte, 64)
	n, err := near.Read(banner)
	if got := string(banner[:n]); got != "RFB 003.008\n" || err != nil {
		t.Fatalf("the viewer reads %q, %v, want the server's version alone", got, err)
	}
	types := make(chan string, 1)
	go func() {
		b := make([]byte, 64)
		n, _ := near.Read(b)
		types <- string(b[:n])
	}()
	if _, err := io.WriteString(near, "RFB 003.0"); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-types:
		t.Fatalf("the viewer reads %q before it has told its version", got)
	default:
	}
	if _, err := io.WriteString(near, "08\n"); err != nil {
		t.Fatal(err)
	}
	if got := <-types; got != "\x01\x01" {
		t.Errorf("the viewer reads %q, want what the server went on with", got)
	}
}

func TestDialCloseEndsRead(t *testing.T) {
	near, far := connect(t, filepath.Join(t.TempDir(), "vnc.sock"))
	if _, err := io.WriteString(far, "RFB 003.008\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(near, make([]byte, 12)); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := near.Read(make([]byte, 1))
		read <- err
	}()
	near.Close()
	if err := <-read; err == nil {
		t.Error("reads on a closed connection")
	}
}

// connect dials a server that begins to listen only then.
func connect(t *testing.T, socket string) (near, far net.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	dialed := make(chan error, 1)
	go func() {
		var err error
		near, err = viewer.Dial(socket)(ctx)
		dialed <- err
	}()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	if err := <-dialed; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}
