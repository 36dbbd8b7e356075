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
