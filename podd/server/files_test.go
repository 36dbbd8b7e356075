package server_test

import (
	"bytes"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/podd/server"
	"github.com/klauspost/compress/zstd"
)

func TestFiles(t *testing.T) {
	p := start(t, server.Options{})
	dir := t.TempDir()
	path := dir + "/new dir/ü+&.bin"
	if w := call[poddapi.Written](p, "PUT", "/v1/files"+query("path", path, "mode", "0600"), "0123456789"); w != (poddapi.Written{Path: path, Size: 10}) {
		t.Errorf("got %+v", w)
	}
	if status, h, data := p.do("GET", "/v1/files"+query("path", path), nil); status != 200 || string(data) != "0123456789" || h.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("got %d %q", status, data)
	}
	if status, _, data := p.do("GET", "/v1/files"+query("path", path), nil, "Range", "bytes=2-4"); status != 206 || string(data) != "234" {
		t.Errorf("range: got %d %q", status, data)
	}
	if status, _, data := p.do("GET", "/v1/files"+query("path", "/proc/self/stat"), nil); status != 200 || len(data) == 0 {
		t.Errorf("a kernel's file: got %d %q", status, data)
	}
	list := call[poddapi.Entries](p, "GET", "/v1/files/list"+query("path", dir+"/new dir"), nil).Entries
	if len(list) != 1 || list[0].Path != path || list[0].Mode != "0600" {
		t.Errorf("got %+v", list)
	}
	if e := call[poddapi.Entry](p, "GET", "/v1/files/stat"+query("path", path), nil); e != list[0] {
		t.Errorf("got %+v", e)
	}
	if e := call[poddapi.Entry](p, "POST", "/v1/files/mkdir", poddapi.MkdirRequest{Path: dir + "/d", Mode: "0700"}); !e.IsDir || e.Mode != "0700" {
		t.Errorf("got %+v", e)
	}
	if e := call[poddapi.Entry](p, "POST", "/v1/files/move", poddapi.MoveRequest{From: path, To: dir + "/d/f"}); e.Path != dir+"/d/f" {
		t.Errorf("got %+v", e)
	}
	p.refused("DELETE", "/v1/files"+query("path", dir+"/d"), nil, 409, "not_empty")
	if status, _, data := p.do("DELETE", "/v1/files"+query("path", dir+"/d", "recursive", "1"), nil); status != 204 || len(data) > 0 {
		t.Errorf("got %d %s", status, data)
	}
	p.refused("GET", "/v1/files"+query("path", dir+"/d"), nil, 404, "file_not_found")
	p.refused("GET", "/v1/files"+query("path", dir), nil, 400, "not_regular")
	p.refused("GET", "/v1/files", nil, 400, "invalid_path")
	p.refused("PUT", "/v1/files"+query("path", path, "mode", "rw"), "x", 400, "invalid_mode")
	p.refused("PUT", "/v1/files"+query("path", path, "uid", "-1"), "x", 400, "invalid_user")
}

// An upload that breaks off changes nothing.
func TestUploadBreaksOff(t *testing.T) {
	p := start(t, server.Options{})
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/f", []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", p.http.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "PUT /v1/files"+query("path", dir+"/f")+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+fullToken+"\r\nContent-Length: 100\r\n\r\nhalf")
	testutil.Eventually(t, "the upload has begun", func() bool { es, _ := os.ReadDir(dir); return len(es) == 2 })
	c.Close()
	testutil.Eventually(t, "the upload is undone", func() bool { es, _ := os.ReadDir(dir); return len(es) == 1 })
	if data, _ := os.ReadFile(dir + "/f"); string(data) != "old" {
		t.Errorf("got %q", data)
	}
}

func TestArchive(t *testing.T) {
	p := start(t, server.Options{})
	dir := t.TempDir()
	content := strings.Repeat("content ", 10_000)
	os.MkdirAll(dir+"/from/sub", 0o755)
	os.WriteFile(dir+"/from/sub/f", []byte(content), 0o644)
	for _, coding := range []string{"", "gzip", "zstd"} {
		status, h, data := p.do("GET", "/v1/archive"+query("path", dir+"/from"), nil, "Accept-Encoding", coding+", br;q=1")
		if status != 200 || h.Get("Content-Encoding") != coding {
			t.Fatalf("%q: got %d, %v", coding, status, h)
		}
		if coding != "" && len(data) > len(content)/10 {
			t.Errorf("%q: got %d bytes", coding, len(data))
		}
		to := dir + "/to" + coding
		status, _, answer := p.do("PUT", "/v1/archive"+query("path", to), string(data), "Content-Encoding", coding)
		if got, err := os.ReadFile(to + "/sub/f"); status != 200 || string(got) != content || err != nil {
			t.Errorf("%q: got %d %s, %v", coding, status, answer, err)
		}
	}
	p.refused("GET", "/v1/archive"+query("path", dir+"/none"), nil, 404, "file_not_found")
	p.refused("PUT", "/v1/archive"+query("path", dir+"/x"), "no gzip", 400, "invalid_archive", "Content-Encoding", "gzip")
	p.refused("PUT", "/v1/archive"+query("path", dir+"/x"), "x", 415, "unsupported_media", "Content-Encoding", "br")
	p.refused("PUT", "/v1/archive"+query("path", dir+"/x"), strings.Repeat("no tar", 500), 400, "invalid_archive")
	var cut bytes.Buffer
	z, _ := zstd.NewWriter(&cut)
	z.Write(make([]byte, 5000))
	z.Close()
	cut.Truncate(cut.Len() - 4)
	p.refused("PUT", "/v1/archive"+query("path", dir+"/x"), cut.String(), 400, "invalid_archive", "Content-Encoding", "zstd")
}

func TestPorts(t *testing.T) {
	p := start(t, server.Options{})
	for family, addr := range map[string]string{"ipv4": "127.0.0.1:0", "ipv6": "[::]:0"} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			testutil.Skip(t, err.Error())
		}
		defer l.Close()
		port := l.Addr().(*net.TCPAddr)
		var got []poddapi.ListeningPort
		for _, lp := range call[poddapi.Ports](p, "GET", "/v1/ports", nil).Ports {
			if lp.Port == port.Port {
				got = append(got, lp)
			}
		}
		if len(got) != 1 || got[0].Address != port.IP.String() || got[0].Family != family || got[0].PID != os.Getpid() || got[0].Command == "" {
			t.Errorf("%s: got %+v", addr, got)
		}
	}
}

// What is sent is what is there, whatever its size.
func TestSizes(t *testing.T) {
	p := start(t, server.Options{})
	path := t.TempDir() + "/f"
	for _, n := range []int{0, 1, 18 << 10, 32<<10 + 1, 1 << 20, 20<<20 + 7} {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(i * 7 / 3)
		}
		if w := call[poddapi.Written](p, "PUT", "/v1/files"+query("path", path), string(data)); w.Size != int64(n) {
			t.Errorf("%d: got %+v", n, w)
		}
		if _, _, got := p.do("GET", "/v1/files"+query("path", path), nil); !bytes.Equal(got, data) {
			t.Errorf("%d: got %d other bytes", n, len(got))
		}
	}
}

func TestTunnel(t *testing.T) {
	p := start(t, server.Options{})
	open := func(port int, token string) (net.Conn, error) {
		c, err := net.Dial("tcp", p.http.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return poddapi.OpenTunnel(t.Context(), c, token, port)
	}
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			testutil.Skip(t, err.Error())
		}
		port := l.Addr().(*net.TCPAddr).Port
		served := make(chan struct{})
		go func() { // answers once it has seen the end of what it is sent
			defer close(served)
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			data, _ := io.ReadAll(c)
			c.Write(append([]byte("got "), data...))
		}()
		c, err := open(port, tunnelToken)
		if err != nil {
			t.Fatal(err)
		}
		data := strings.Repeat("x", 1<<20)
		go func() {
			io.WriteString(c, data)
			c.(interface{ CloseWrite() error }).CloseWrite()
		}()
		if got, err := io.ReadAll(c); err != nil || string(got) != "got "+data {
			t.Errorf("%s: got %d bytes, %v", addr, len(got), err)
		}
		c.Close()
		<-served
		l.Close()
		if _, err := open(port, fullToken); err == nil || !strings.Contains(err.Error(), "nobody listens on port "+strconv.Itoa(port)) {
			t.Errorf("closed: got %v", err)
		}
	}
	p.refused("GET", "/v1/ports/0/tunnel", nil, 400, "invalid_port")
	p.refused("GET", "/v1/ports/65536/tunnel", nil, 400, "invalid_port")
	p.refused("GET", "/v1/ports/1/tunnel", nil, 502, "port_closed", "Connection", "Upgrade", "Upgrade", "tcp")
}
