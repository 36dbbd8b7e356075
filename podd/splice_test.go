package main_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubeplexai/cubepod/internal/poddapi"
)

// read is how many bytes podd has read into its own memory.
func (p *podd) read(t *testing.T) (n int64) {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if k, _ := fmt.Sscanf(line, "rchar: %d", &n); k == 1 {
			return n
		}
	}
	t.Fatalf("no rchar in %s", data)
	return 0
}

// The kernel carries a tunnel's bytes in both directions: they never come into
// podd's memory.
func TestTunnelsAreSpliced(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	guest, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	conn, err := new(net.Dialer).DialContext(context.Background(), "unix", filepath.Join(dir, "podd.sock"))
	if err != nil {
		t.Fatal(err)
	}
	tunnel, err := poddapi.OpenTunnel(t.Context(), conn, token, guest.Addr().(*net.TCPAddr).Port)
	if err != nil {
		t.Fatal(err)
	}
	defer tunnel.Close()
	there, err := guest.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	const size = 64 << 20
	before := p.read(t)
	for name, way := range map[string][2]net.Conn{"to the guest": {tunnel, there}, "from the guest": {there, tunnel}} {
		sent := make(chan error, 1)
		go func() {
			_, err := way[0].Write(make([]byte, size))
			sent <- err
		}()
		if n, err := io.CopyN(io.Discard, way[1], size); n != size {
			t.Errorf("%s: got %d bytes, %v", name, n, err)
		}
		if err := <-sent; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := p.read(t) - before; n > size/100 {
			t.Errorf("%s: podd has read %d bytes", name, n)
		}
	}
}
