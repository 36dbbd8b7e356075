package caddymodule_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/quic-go/quic-go/http3"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

// bodySize can be raised: go test ./caddymodule -run TestBodies -body 10737418240
var bodySize = flag.Int64("body", 1<<30, "bytes of the bodies that TestBodies sends over HTTP/1.1; a quarter over the others")

// rssLimit is by how much this process, edge, guest and client in one, may grow
// over a body. What is under way in sockets is the kernel's.
const rssLimit = 128 << 20

// heldLimit is how much may be on its way when nobody reads at the other end.
const heldLimit = 64 << 20

// pattern gives n bytes, the same again and again, without keeping them, and
// counts what was taken.
type pattern struct {
	n     int64
	block []byte
	taken atomic.Int64
}

func newPattern(n int64) *pattern { return &pattern{n: n, block: randomBytes(1 << 16)} }

func (p *pattern) Read(b []byte) (int, error) {
	at := p.taken.Load()
	if at >= p.n {
		return 0, io.EOF
	}
	b = b[:min(int64(len(b)), p.n-at)]
	n := copy(b, p.block[at%int64(len(p.block)):])
	p.taken.Add(int64(n))
	return n, nil
}

// check reads r and reports whether it is p's bytes, all of them and no more.
func (p *pattern) check(r io.Reader) error {
	buf := make([]byte, len(p.block))
	for left := p.n; left > 0; left -= int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), left)]
		if _, err := io.ReadFull(r, buf); err != nil {
			return fmt.Errorf("%d bytes before the end: %w", left, err)
		}
		if !bytes.Equal(buf, p.block[:len(buf)]) {
			return fmt.Errorf("other bytes, %d before the end", left)
		}
	}
	if n, err := r.Read(buf[:1]); n != 0 || err != io.EOF {
		return fmt.Errorf("more than there is: %d, %v", n, err)
	}
	return nil
}

// rss gives this process's resident memory, now and at its highest since the
// last call.
func rss(t *testing.T) (now, peak int64) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			now = kib << 10
		}
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			peak = kib << 10
		}
	}
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
	return now, peak
}

// clients speak one version of HTTP each.
func clients(t *testing.T) map[string]*http.Client {
	t.Helper()
	h1 := &http.Transport{TLSClientConfig: insecure.Clone(), DisableCompression: true, Protocols: new(http.Protocols)}
	h1.Protocols.SetHTTP1(true)
	h2 := &http.Transport{TLSClientConfig: insecure.Clone(), DisableCompression: true, Protocols: new(http.Protocols)}
	h2.Protocols.SetHTTP2(true)
	h3 := &http3.Transport{TLSClientConfig: insecure.Clone(), DisableCompression: true}
	t.Cleanup(func() {
		h1.CloseIdleConnections()
		h2.CloseIdleConnections()
		if err := h3.Close(); err != nil {
			t.Error(err)
		}
	})
	return map[string]*http.Client{"HTTP/1.1": {Transport: h1}, "HTTP/2.0": {Transport: h2}, "HTTP/3.0": {Transport: h3}}
}

// send sends a request and checks that it went over the version asked for.
func send(t *testing.T, c *http.Client, version, method, url string, body io.Reader, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.Proto != version {
		t.Fatalf("the answer came over %s, want %s", resp.Proto, version)
	}
	return resp
}

// TestBodies moves big bodies both ways over each version, of known and of
// unknown length, and looks at the memory that takes.
func TestBodies(t *testing.T) {
	down := make(chan *pattern, 1)
	up := make(chan *pattern, 1)
	e := startEdge(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			p := <-down
			if r.URL.Path == "/sized" {
				w.Header().Set("Content-Length", fmt.Sprint(p.n))
			}
			io.Copy(w, p)
			return
		}
		if err := (<-up).check(r.Body); err != nil {
			fmt.Fprintf(w, "length %d: %v", r.ContentLength, err)
			return
		}
		fmt.Fprintf(w, "length %d: good", r.ContentLength)
	}), edgeOptions{tls: true, quiet: true})
	panel := e.panel(3000)
	for version, c := range clients(t) {
		size := *bodySize
		if version != "HTTP/1.1" {
			size /= 4
		}
		t.Run(version, func(t *testing.T) {
			before, _ := rss(t)
			for _, path := range []string{"/sized", "/chunked"} {
				p := newPattern(size)
				down <- p
				resp := send(t, c, version, "GET", panel+path, nil)
				if err := p.check(resp.Body); err != nil {
					t.Errorf("down, %s: %v", path, err)
				}
				if known := resp.ContentLength == size; known != (path == "/sized") {
					t.Errorf("down, %s: length %d", path, resp.ContentLength)
				}
				p = newPattern(size)
				up <- p
				var body io.Reader = p
				length := int64(-1)
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, panel+path, body)
				if err != nil {
					t.Fatal(err)
				}
				if path == "/sized" {
					r.ContentLength, length = size, size
				}
				resp, err = c.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if want := fmt.Sprintf("length %d: good", length); err != nil || string(got) != want {
					t.Errorf("up, %s: got %q, %v, want %q", path, got, err, want)
				}
			}
			if _, peak := rss(t); peak-before > rssLimit {
				t.Errorf("memory grew by %d MiB over bodies of %d MiB", (peak-before)>>20, size>>20)
			} else {
				t.Logf("4 bodies of %d MiB: memory grew by %d MiB", size>>20, (peak-before)>>20)
			}
		})
	}
}

// TestBodiesWaitForTheirReader stops reading at one end: the other is held back.
func TestBodiesWaitForTheirReader(t *testing.T) {
	source, release := make(chan *pattern, 1), make(chan struct{})
	e := startEdge(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			io.Copy(w, <-source)
			return
		}
		<-release // reads nothing, and so never learns that the client is gone
	}), edgeOptions{tls: true, quiet: true})
	panel := e.panel(3000)
	for version, c := range clients(t) {
		t.Run(version, func(t *testing.T) {
			held := func(what string, p *pattern) {
				t.Helper()
				last := int64(0)
				testutil.Eventually(t, what+" is held back", func() bool {
					n := p.taken.Load()
					same := n == last && n > 0
					last = n
					return same
				})
				if last > heldLimit {
					t.Errorf("%s: %d MiB went out, and nobody reads", what, last>>20)
				}
			}
			p := newPattern(1 << 30)
			source <- p
			resp := send(t, c, version, "GET", panel+"/", nil)
			held("the guest", p)
			resp.Body.Close()

			p = newPattern(1 << 30)
			ctx, cancel := context.WithCancel(t.Context())
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, panel+"/", p)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { // ends when it is cancelled
				resp, err := c.Do(r)
				if err == nil {
					resp.Body.Close()
				}
				done <- err
			}()
			held("the client", p)
			cancel()
			release <- struct{}{}
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestAnswersOverEachVersion checks what a proxy may spoil: events that come at
// once, an answer that begins before the request is over, ranges, and a request
// whose body ends while its answer goes on.
func TestAnswersOverEachVersion(t *testing.T) {
	content := strings.Repeat("0123456789", 1000)
	e := startEdge(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctl := http.NewResponseController(w)
		switch r.URL.Path {
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: 1\n\n")
			ctl.Flush()
			<-r.Context().Done()
		case "/talk":
			ctl.EnableFullDuplex()
			w.WriteHeader(http.StatusOK)
			ctl.Flush()
			lines := bufio.NewScanner(r.Body)
			for lines.Scan() {
				fmt.Fprintf(w, "you said %s\n", lines.Text())
				ctl.Flush()
			}
			io.WriteString(w, "bye\n")
		default:
			http.ServeContent(w, r, "x.bin", time.Time{}, strings.NewReader(content))
		}
	}), edgeOptions{tls: true})
	panel := e.panel(3000)
	for version, c := range clients(t) {
		t.Run(version, func(t *testing.T) {
			resp := send(t, c, version, "GET", panel+"/events", nil)
			if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || line != "data: 1\n" {
				t.Errorf("events: got %q, %v", line, err)
			}
			resp.Body.Close()
			resp = send(t, c, version, "GET", panel+"/x.bin", nil, "Range", "bytes=5-14")
			if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 206 || string(body) != "5678901234" {
				t.Errorf("range: got %d %q, %v", resp.StatusCode, body, err)
			}
			if version == "HTTP/1.1" {
				return // Go's client sends a body before it reads
			}
			body, w := io.Pipe()
			resp = send(t, c, version, "POST", panel+"/talk", body)
			answers := bufio.NewReader(resp.Body)
			for _, word := range []string{"one", "two"} {
				fmt.Fprintln(w, word)
				if got, err := answers.ReadString('\n'); err != nil || got != "you said "+word+"\n" {
					t.Fatalf("talk: got %q, %v", got, err)
				}
			}
			w.Close()
			if rest, err := io.ReadAll(answers); err != nil || string(rest) != "bye\n" {
				t.Errorf("after the client's end: got %q, %v", rest, err)
			}
		})
	}
}

// TestWebSocketMessages sends what a socket may carry over HTTP/1.1: a message
// of 64 MiB, pings both ways, and no subprotocol where the guest wants none.
func TestWebSocketMessages(t *testing.T) {
	pinged := make(chan error, 1)
	e := startEdge(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ping" {
			wsEcho(w, r)
			return
		}
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
		if err != nil {
			return
		}
		defer c.CloseNow()
		ctx := c.CloseRead(r.Context()) // pongs are read there
		pinged <- c.Ping(ctx)
		<-ctx.Done()
	}), edgeOptions{})
	c := e.dial(e.panel(3000)+"/ws", "binary", "graphql-ws")
	if c.Subprotocol() != "" {
		t.Errorf("the guest chose none, the client got %q", c.Subprotocol())
	}
	e.ping(c, string(randomBytes(64<<20)))
	for _, path := range []string{"/ws", "/ping"} {
		c := e.dial(e.panel(3000) + path)
		ctx := c.CloseRead(t.Context())
		if err := c.Ping(ctx); err != nil {
			t.Errorf("%s: no pong from the guest: %v", path, err)
		}
	}
	if err := <-pinged; err != nil {
		t.Errorf("no pong from the client: %v", err)
	}
}
