package viewer_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/cubeplexai/cubepod/desktopctl/viewer"
	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/loopback"
)

// serve runs a viewer behind its guard, as the ctl does.
func serve(t *testing.T, opts viewer.Options) (*httptest.Server, *viewer.Viewer) {
	t.Helper()
	v := viewer.New(opts)
	srv := httptest.NewServer(loopback.Guard(8080, v))
	srv.Client().Transport.(*http.Transport).DisableKeepAlives = true
	t.Cleanup(func() {
		v.Close()
		srv.Close()
	})
	return srv, v
}

// vncServer hands each connection of a viewer to the test.
func vncServer(t *testing.T) (func(context.Context) (net.Conn, error), <-chan net.Conn) {
	t.Helper()
	conns := make(chan net.Conn, 4)
	return func(context.Context) (net.Conn, error) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer ln.Close()
		near, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			return nil, err
		}
		far, err := ln.Accept()
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { far.Close() })
		conns <- far
		return near, nil
	}, conns
}

func dial(t *testing.T, srv *httptest.Server, opts *websocket.DialOptions) *websocket.Conn {
	t.Helper()
	c, _, err := websocket.Dial(t.Context(), srv.URL+"/websockify", opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.CloseNow() })
	c.SetReadLimit(-1)
	return c
}

func TestPages(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"index.html": "<p>page", "viewer.js": "script", "viewer.css": "style"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	srv, _ := serve(t, viewer.Options{WebDir: dir})
	const html, js, css = "text/html; charset=utf-8", "text/javascript; charset=utf-8", "text/css; charset=utf-8"
	tests := []struct {
		name, method, path string
		status             int
		typ, body          string
	}{
		{"root", "GET", "/", 200, html, "<p>page"},
		{"unknown query", "GET", "/?usr=x&pwd=y&embed=1", 200, html, "<p>page"},
		{"noVNC's page", "GET", "/vnc.html?autoconnect=true&resize=scale", 200, html, "<p>page"},
		{"noVNC's small page", "GET", "/vnc_lite.html", 200, html, "<p>page"},
		{"script", "GET", "/viewer.js", 200, js, "script"},
		{"style", "GET", "/viewer.css", 200, css, "style"},
		{"head", "HEAD", "/", 200, html, ""},
		{"absent", "GET", "/other.js", 404, "application/json", ""},
		{"folder", "GET", "/folder", 404, "application/json", ""},
		{"way out", "GET", "/..%2fviewer.go", 404, "application/json", ""},
		{"socket without handshake", "GET", "/websockify", 400, "application/json", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req, _ := http.NewRequest(tt.method, srv.URL+tt.path, nil)
			req.Header.Set("Accept-Encoding", "identity")
			resp, err := srv.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.status || resp.Header.Get("Content-Type") != tt.typ {
				t.Errorf("got %d %s, want %d %s", resp.StatusCode, resp.Header.Get("Content-Type"), tt.status, tt.typ)
			}
			if tt.status == 200 && string(body) != tt.body {
				t.Errorf("body %q, want %q", body, tt.body)
			}
		})
	}
}

func TestHandshake(t *testing.T) {
	rfb, _ := vncServer(t)
	srv, _ := serve(t, viewer.Options{RFB: rfb})
	tests := []struct {
		name      string
		protocols []string
		origin    string
		status    int
		want      string // the subprotocol chosen
	}{
		{"plain", nil, "", 101, ""},
		{"noVNC 1.1", []string{"binary"}, "", 101, "binary"},
		{"noVNC 0.6", []string{"base64", "binary"}, "", 101, "binary"},
		{"edge", nil, "http://127.0.0.1:8080", 101, ""},
		{"page", nil, "https://evil.example", 403, ""},
		{"sandboxed page", nil, "null", 403, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			opts := &websocket.DialOptions{Subprotocols: tt.protocols, HTTPHeader: http.Header{}}
			if tt.origin != "" {
				opts.HTTPHeader.Set("Origin", tt.origin)
			}
			c, resp, err := websocket.Dial(t.Context(), srv.URL+"/websockify", opts)
			if resp == nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.status {
				t.Fatalf("status %d (%v), want %d", resp.StatusCode, err, tt.status)
			}
			if c == nil {
				return
			}
			defer c.CloseNow()
			if got := c.Subprotocol(); got != tt.want {
				t.Errorf("subprotocol %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRelay(t *testing.T) {
	rfb, conns := vncServer(t)
	srv, _ := serve(t, viewer.Options{RFB: rfb})
	page := dial(t, srv, nil)
	server := <-conns

	want := bytes.Repeat([]byte{0, 1, 0xff, 0x80, '\n'}, 500_000)
	go server.Write(want)
	var got []byte
	for len(got) < len(want) {
		typ, data, err := page.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if typ != websocket.MessageBinary {
			t.Fatalf("message of type %v, want binary", typ)
		}
		got = append(got, data...)
	}
	if !bytes.Equal(got, want) {
		t.Error("the server's bytes arrived changed")
	}

	back := bytes.Repeat([]byte{0xfe, 0, 7}, 300_000)
	sent := make(chan error, 1)
	go func() { sent <- page.Write(t.Context(), websocket.MessageBinary, back) }()
	got = make([]byte, len(back))
	if _, err := io.ReadFull(server, got); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if !bytes.Equal(got, back) {
		t.Error("the page's bytes arrived changed")
	}
}

// Whichever side ends, the other learns it at once and in its own words.
func TestEnds(t *testing.T) {
	t.Run("by the page", func(t *testing.T) {
		rfb, conns := vncServer(t)
		srv, _ := serve(t, viewer.Options{RFB: rfb})
		page := dial(t, srv, nil)
		server := <-conns
		if err := page.Close(websocket.StatusNormalClosure, ""); err != nil {
			t.Error(err)
		}
		if _, err := server.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the server reads %v, want EOF", err)
		}
	})
	t.Run("by a page that vanishes", func(t *testing.T) {
		rfb, conns := vncServer(t)
		srv, _ := serve(t, viewer.Options{RFB: rfb})
		page := dial(t, srv, nil)
		server := <-conns
		page.CloseNow()
		if _, err := server.Read(make([]byte, 1)); err == nil {
			t.Error("the server reads on, want its connection's end")
		}
	})
	t.Run("by the VNC server", func(t *testing.T) {
		rfb, conns := vncServer(t)
		srv, _ := serve(t, viewer.Options{RFB: rfb})
		page := dial(t, srv, nil)
		server := <-conns
		server.Write([]byte("last words"))
		server.Close()
		if _, data, err := page.Read(t.Context()); err != nil || string(data) != "last words" {
			t.Errorf("page reads %q, %v", data, err)
		}
		_, _, err := page.Read(t.Context())
		if got := websocket.CloseStatus(err); got != websocket.StatusBadGateway {
			t.Errorf("closed with %v (%v), want %v", got, err, websocket.StatusBadGateway)
		}
	})
	t.Run("by Close", func(t *testing.T) {
		rfb, conns := vncServer(t)
		srv, v := serve(t, viewer.Options{RFB: rfb})
		page := dial(t, srv, nil)
		server := <-conns
		closed := make(chan struct{})
		go func() { defer close(closed); v.Close() }()
		_, _, err := page.Read(t.Context())
		if got := websocket.CloseStatus(err); got != websocket.StatusGoingAway {
			t.Errorf("closed with %v (%v), want %v", got, err, websocket.StatusGoingAway)
		}
		if _, err := server.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the server reads %v, want EOF", err)
		}
		<-closed
		_, resp, _ := websocket.Dial(t.Context(), srv.URL+"/websockify", nil)
		if resp == nil || resp.StatusCode != 503 {
			t.Errorf("a handshake after Close: %v, want 503", resp)
		}
	})
}

func TestNoServer(t *testing.T) {
	srv, _ := serve(t, viewer.Options{RFB: func(context.Context) (net.Conn, error) {
		return nil, errors.New("connection refused")
	}})
	_, resp, err := websocket.Dial(t.Context(), srv.URL+"/websockify", nil)
	if err == nil || resp == nil {
		t.Fatalf("dialled: %v", err)
	}
	if got := apierror.Read(resp); resp.StatusCode != 502 || got.Code != "port_closed" {
		t.Errorf("got %d %s, want 502 port_closed", resp.StatusCode, got.Code)
	}
}

// A page that answers no ping is given up, though its connection stays open.
func TestSilentPage(t *testing.T) {
	rfb, conns := vncServer(t)
	srv, _ := serve(t, viewer.Options{RFB: rfb, Heartbeat: 20 * time.Millisecond})
	dial(t, srv, nil) // and nobody reads, so no pong is ever sent
	if _, err := (<-conns).Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the server reads %v, want EOF", err)
	}
}

// A page that answers is pinged again and again and stays.
func TestHeartbeat(t *testing.T) {
	rfb, conns := vncServer(t)
	srv, _ := serve(t, viewer.Options{RFB: rfb, Heartbeat: 20 * time.Millisecond})
	pinged := make(chan struct{}, 100)
	page := dial(t, srv, &websocket.DialOptions{OnPingReceived: func(context.Context, []byte) bool {
		select {
		case pinged <- struct{}{}:
		default:
		}
		return true
	}})
	server := <-conns
	got := make(chan string, 1)
	go func() {
		_, data, err := page.Read(t.Context())
		if err != nil {
			data = []byte(err.Error())
		}
		got <- string(data)
	}()
	for range 5 {
		<-pinged
	}
	server.Write([]byte("still here"))
	if got := <-got; got != "still here" {
		t.Errorf("page reads %q", got)
	}
}

// A page that does not read holds up the VNC server instead of filling memory.
func TestBackpressure(t *testing.T) {
	rfb, conns := vncServer(t)
	srv, _ := serve(t, viewer.Options{RFB: rfb})
	dial(t, srv, nil)
	server := <-conns
	const plenty = 64 << 20 // far more than the kernel's buffers
	chunk := make([]byte, 1<<20)
	for sent := 0; sent < plenty; {
		server.SetWriteDeadline(time.Now().Add(time.Second))
		n, err := server.Write(chunk)
		sent += n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Errorf("took %d bytes for a page that reads none", plenty)
}
