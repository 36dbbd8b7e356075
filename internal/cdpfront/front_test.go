package cdpfront_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/cdpfront"
	"github.com/cubeplexai/cubepod/internal/loopback"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// closedPort gives an address where nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// echo is a browser whose every WebSocket echoes.
func echo(t *testing.T) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			io.WriteString(w, r.Host+" "+r.Header.Get("Origin"))
			return
		}
		if o := r.Header.Get("Origin"); o != "" {
			t.Errorf("the browser sees Origin %q", o)
		}
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		c.SetReadLimit(-1)
		for {
			typ, data, err := c.Read(r.Context())
			if err != nil || c.Write(r.Context(), typ, data) != nil {
				return
			}
		}
	})
}

func TestGuard(t *testing.T) {
	browser := httptest.NewServer(echo(t))
	defer browser.Close()
	upstream := browser.Listener.Addr().String()
	front := newFront(t, cdpfront.New(upstream, nil))
	tests := []struct {
		name, host, origin string
		want               int
	}{
		{"tool", "", "", 200},
		{"edge", loopback.Host(cdpfront.Port), loopback.Origin(cdpfront.Port), 200},
		{"page", "", "https://evil.example", 403},
		{"own panel in an opaque frame", "", "null", 403},
		{"rebound name", "rebind.example:9222", "", 403},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req, _ := http.NewRequest("GET", front.URL, nil)
			req.Host = tt.host
			if tt.origin != "" {
				req.Header.Set("Origin", tt.origin)
			}
			resp, err := front.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != tt.want {
				t.Errorf("got %d, want %d", resp.StatusCode, tt.want)
			}
			if want := upstream + " "; tt.want == 200 && string(body) != want {
				t.Errorf("the browser saw Host and Origin %q, want %q", body, want)
			}
		})
	}
}

func TestWebSocket(t *testing.T) {
	browser := httptest.NewServer(echo(t))
	defer browser.Close()
	front := newFront(t, cdpfront.New(browser.Listener.Addr().String(), nil))
	c, _, err := websocket.Dial(t.Context(), front.URL+"/devtools/page/T1", &websocket.DialOptions{
		HTTPHeader: http.Header{"Origin": {loopback.Origin(cdpfront.Port)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	c.SetReadLimit(-1)
	want := bytes.Repeat([]byte("screenshot"), 200_000)
	if err := c.Write(t.Context(), websocket.MessageText, want); err != nil {
		t.Fatal(err)
	}
	_, got, err := c.Read(t.Context())
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes (%v), want %d", len(got), err, len(want))
	}
}

// A WebSocket that names no target gets the browser's own, whatever the
// browser calls it, and no other request is touched by that.
func TestBrowserWithoutItsID(t *testing.T) {
	var version string
	asked := make(chan string, 1)
	browser := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/json/version" {
			io.WriteString(w, version)
			return
		}
		asked <- r.URL.RequestURI()
		if c, err := websocket.Accept(w, r, nil); err == nil {
			c.CloseNow()
		}
	}))
	defer browser.Close()
	front := newFront(t, cdpfront.New(browser.Listener.Addr().String(), nil))
	const known = `{"webSocketDebuggerUrl":"ws://127.0.0.1:9223/devtools/browser/b1"}`
	tests := []struct {
		name, path, version string
		status              int
		want                string
	}{
		{"root", "/", known, 101, "/devtools/browser/b1"},
		{"root with a query", "/?token=x", known, 101, "/devtools/browser/b1"},
		{"browser", "/devtools/browser", known, 101, "/devtools/browser/b1"},
		{"browser with a slash", "/devtools/browser/", known, 101, "/devtools/browser/b1"},
		{"browser by its id", "/devtools/browser/b0", known, 101, "/devtools/browser/b0"},
		{"page", "/devtools/page/p1?x=1", known, 101, "/devtools/page/p1?x=1"},
		{"no address", "/", `{}`, 502, ""},
		{"no document", "/", `<html>`, 502, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			version = tt.version
			c, resp, err := websocket.Dial(t.Context(), front.URL+tt.path, nil)
			if err == nil {
				c.CloseNow()
			}
			if resp == nil || resp.StatusCode != tt.status {
				t.Fatalf("got %v, %v, want status %d", resp, err, tt.status)
			}
			if tt.want != "" {
				if got := <-asked; got != tt.want {
					t.Errorf("the browser was asked for %s, want %s", got, tt.want)
				}
			}
		})
	}
	resp, err := front.Client().Get(front.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := <-asked; got != "/" {
		t.Errorf("a plain request for the root became %s", got)
	}
}

func TestCloseEndsWebSockets(t *testing.T) {
	browser := httptest.NewServer(echo(t))
	defer browser.Close()
	front := cdpfront.New(browser.Listener.Addr().String(), nil)
	srv := newFront(t, front)
	c, _, err := websocket.Dial(t.Context(), srv.URL+"/devtools/page/T1", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	front.Close()
	if _, _, err := c.Read(t.Context()); err == nil || t.Context().Err() != nil {
		t.Errorf("read after Close: %v, want the connection's end", err)
	}
	resp, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 503 {
		t.Errorf("a request after Close got %d, want 503", resp.StatusCode)
	}
}

// Requests that find no browser start it once, and are then answered by it.
func TestWakesOnceForAll(t *testing.T) {
	const clients = 20
	addr := closedPort(t)
	var wakes atomic.Int32
	release := make(chan struct{})
	browser := &http.Server{Handler: echo(t)}
	defer browser.Close()
	served := make(chan struct{})
	front := newFront(t, cdpfront.New(addr, func(ctx context.Context) error {
		wakes.Add(1)
		select {
		case <-release:
		case <-ctx.Done():
			return ctx.Err()
		}
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		go func() {
			defer close(served)
			browser.Serve(ln)
		}()
		return nil
	}))

	// Neither a connection without a request nor a page wakes anything.
	bare, err := net.Dial("tcp", front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	req, _ := http.NewRequest("GET", front.URL, nil)
	req.Header.Set("Origin", "https://evil.example")
	if resp, err := front.Client().Do(req); err != nil {
		t.Fatal(err)
	} else {
		resp.Body.Close()
	}
	if n := wakes.Load(); n != 0 {
		t.Fatalf("woken %d times by what may not wake", n)
	}

	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			resp, err := front.Client().Post(front.URL, "text/plain", bytes.NewReader([]byte("body")))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if resp.StatusCode != 200 {
				t.Errorf("got %d, want 200", resp.StatusCode)
			}
		})
	}
	testutil.Eventually(t, "a wake is under way", func() bool { return wakes.Load() > 0 })
	close(release)
	wg.Wait()
	if n := wakes.Load(); n != 1 {
		t.Errorf("woken %d times, want once", n)
	}
	browser.Close()
	<-served
}

func TestAnswersWithoutABrowser(t *testing.T) {
	stopping := apierror.New(apierror.Unavailable, "stopping", "the sandbox is stopping")
	tests := []struct {
		name   string
		wake   func(context.Context) error
		status int
		code   string
	}{
		{"nobody to wake it", nil, 502, "port_closed"},
		{"wake says why not", func(context.Context) error { return stopping }, 503, "stopping"},
		{"wake breaks", func(context.Context) error { return errors.New("no display") }, 502, "browser_failed"},
		{"wake changes nothing", func(context.Context) error { return nil }, 502, "port_closed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			front := newFront(t, cdpfront.New(closedPort(t), tt.wake))
			resp, err := front.Client().Get(front.URL + "/json/version")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			got := apierror.Read(resp)
			if resp.StatusCode != tt.status || got.Code != tt.code {
				t.Errorf("got %d %s, want %d %s", resp.StatusCode, got.Code, tt.status, tt.code)
			}
		})
	}
}

// Close ends a wake that is still at work.
func TestCloseEndsTheWake(t *testing.T) {
	started := make(chan struct{})
	front := cdpfront.New(closedPort(t), func(ctx context.Context) error {
		close(started)
		<-ctx.Done()
		return ctx.Err()
	})
	srv := newFront(t, front)
	done := make(chan struct{})
	go func() {
		defer close(done)
		resp, err := srv.Client().Get(srv.URL)
		if err == nil {
			resp.Body.Close()
		}
	}()
	<-started
	front.Close()
	<-done
}
