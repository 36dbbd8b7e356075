package caddymodule_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"golang.org/x/net/http2"

	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// stream is a WebSocket on a stream of HTTP/2 or HTTP/3, as a browser has it.
type stream struct {
	t      testing.TB
	status int
	header http.Header
	w      io.Writer
	r      *bufio.Reader
	close  func()
}

func (s *stream) send(op byte, payload string) {
	s.t.Helper()
	frame := []byte{0x80 | op, 0x80 | byte(len(payload))}
	if len(payload) > 125 {
		frame = binary.BigEndian.AppendUint64([]byte{0x80 | op, 0xff}, uint64(len(payload)))
	}
	frame = append(frame, 0, 0, 0, 0) // a mask that masks nothing
	if _, err := s.w.Write(append(frame, payload...)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stream) receive() (op byte, payload string) {
	s.t.Helper()
	var head [2]byte
	if _, err := io.ReadFull(s.r, head[:]); err != nil {
		s.t.Fatal(err)
	}
	n := int(head[1])
	if n >= 126 {
		size := make([]byte, 8)
		if n == 126 {
			size = size[:2]
		}
		if _, err := io.ReadFull(s.r, size); err != nil {
			s.t.Fatal(err)
		}
		n = 0
		for _, b := range size {
			n = n<<8 | int(b)
		}
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(s.r, body); err != nil {
		s.t.Fatal(err)
	}
	return head[0] & 0x0f, string(body)
}

func request(t testing.TB, target string, header http.Header) *http.Request {
	t.Helper()
	r, err := http.NewRequest(http.MethodConnect, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Sec-Websocket-Version": {"13"}, "Origin": {"null"}, "Sec-Websocket-Protocol": {"binary, tty"}}
	for name, v := range header {
		r.Header[name] = v
	}
	return r
}

// overHTTP2 opens a WebSocket by RFC 8441.
func overHTTP2(t testing.TB, target string) *stream {
	t.Helper()
	body, w := io.Pipe()
	//lint:ignore SA1019 the transport of net/http refuses the name of the ":protocol" header
	h2 := &http.Client{Transport: &http2.Transport{TLSClientConfig: insecure}}
	r := request(t, target, http.Header{":protocol": {"websocket"}})
	r.Body = body
	resp, err := h2.Transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	end := func() { w.Close(); resp.Body.Close(); h2.CloseIdleConnections() }
	t.Cleanup(end)
	return &stream{t, resp.StatusCode, resp.Header, w, bufio.NewReader(resp.Body), end}
}

// overHTTP3 opens a WebSocket by RFC 9220.
func overHTTP3(t testing.TB, target string) *stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testutil.Patience)
	t.Cleanup(cancel)
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(u.Host)
	conn, err := quic.DialAddr(ctx, "127.0.0.1:"+port, &tls.Config{InsecureSkipVerify: true, ServerName: u.Hostname(), NextProtos: []string{http3.NextProtoH3}}, &quic.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.CloseWithError(0, "") })
	s, err := new(http3.Transport).NewClientConn(conn).OpenRequestStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r := request(t, target, nil)
	r.Proto = "websocket"
	if err := s.SendRequestHeader(r); err != nil {
		t.Fatal(err)
	}
	resp, err := s.ReadResponse()
	if err != nil {
		t.Fatal(err)
	}
	return &stream{t, resp.StatusCode, resp.Header, s, bufio.NewReader(s), func() { s.Close() }}
}

var versions = map[string]func(testing.TB, string) *stream{"HTTP/2": overHTTP2, "HTTP/3": overHTTP3}

func TestWebSocketOverEachVersion(t *testing.T) {
	for name, open := range versions {
		t.Run(name, func(t *testing.T) {
			e := startEdge(t, http.HandlerFunc(wsEcho), edgeOptions{tls: true})
			s := open(t, e.panel(3000)+"/ws")
			if s.status != 200 || s.header.Get("Sec-Websocket-Protocol") != "tty" {
				t.Fatalf("got %d %v", s.status, s.header)
			}
			s.send(1, "hello")
			if op, got := s.receive(); op != 1 || got != "hello" {
				t.Errorf("got %d %q", op, got)
			}
			s.send(9, "ping")
			if op, got := s.receive(); op != 10 || got != "ping" {
				t.Errorf("got %d %q", op, got)
			}
			big := string(randomBytes(64 << 20))
			sent := make(chan struct{})
			go func() { defer close(sent); s.send(2, big) }() // ends with the message
			if op, got := s.receive(); op != 2 || got != big {
				t.Errorf("got %d and %d bytes", op, len(got))
			}
			<-sent
			e.update(func(r *session.Record) { r.Gen++ })
			if op, got := s.receive(); op != 8 || got != "\x03\xf0revoked" {
				t.Errorf("got %d %q", op, got)
			}
			if _, err := s.r.ReadByte(); err == nil {
				t.Error("goes on after the close frame")
			}
			if again := open(t, e.url+"/panel/nonsense/ws"); again.status != 403 {
				t.Errorf("a bad token: got %d", again.status)
			}
		})
	}
}

func TestViewOnlyOverEachVersion(t *testing.T) {
	for name, open := range versions {
		t.Run(name, func(t *testing.T) {
			e := startEdge(t, nil, edgeOptions{tls: true})
			heard := make(chan string, 10)
			e.podd.listen(8080, hears(heard))
			e.update(func(r *session.Record) { r.Ports[8080] = session.Port{} })
			s := open(t, e.viewPanel(8080)+"/websockify")
			s.send(2, "RFB 003.008\n\x01\x00\x04\x01\x00\x00\x00\x00\x00A")
			if op, got := s.receive(); op != 2 || got != "picture" {
				t.Fatalf("got %d %q", op, got)
			}
			if first, second := <-heard, <-heard; first != "extensions " || second != "RFB 003.008\n\x01\x01" {
				t.Errorf("got %q, %q", first, second)
			}
			s.send(2, "\x07")
			if op, got := s.receive(); op != 8 || got != "\x03\xf0view_only" {
				t.Errorf("got %d %q", op, got)
			}
		})
	}
}

// TestStreamOutlivesCaddysTimeouts has a WebSocket over HTTP/2 that is quiet for
// longer than Caddy lets a body be.
func TestStreamOutlivesCaddysTimeouts(t *testing.T) {
	for name, open := range versions {
		t.Run(name, func(t *testing.T) {
			e := startEdge(t, http.HandlerFunc(wsEcho), edgeOptions{tls: true, caddy: "servers {\ntimeouts {\nread_body_idle 1s\nwrite_idle 1s\n}\n}"})
			s := open(t, e.panel(3000)+"/ws")
			s.send(1, "a")
			s.receive()
			quiet := time.NewTimer(2500 * time.Millisecond)
			<-quiet.C
			s.send(1, "b")
			if op, got := s.receive(); op != 1 || got != "b" {
				t.Errorf("got %d %q", op, got)
			}
		})
	}
}

// TestStreamHalfClose ends one direction; what the guest still says arrives.
func TestStreamHalfClose(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, brw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
		said, _ := io.ReadAll(brw)
		fmt.Fprintf(conn, "you said %d bytes", len(said))
	}), edgeOptions{})
	for _, protocol := range []string{"raw", "websocket"} {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", e.port))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		path := strings.TrimPrefix(e.panel(3000), e.url)
		// What follows at once must not be lost either.
		fmt.Fprintf(conn, "GET %s/x HTTP/1.1\r\nHost: localhost:%d\r\nConnection: keep-alive, Upgrade\r\nUpgrade: %s\r\n\r\nearly", path, e.port, protocol)
		br := bufio.NewReader(conn)
		resp, err := http.ReadResponse(br, nil)
		if err != nil || resp.StatusCode != 101 {
			t.Fatalf("%s: got %v, %v", protocol, resp, err)
		}
		io.WriteString(conn, "late")
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(br); err != nil || string(got) != "you said 9 bytes" {
			t.Errorf("%s: got %q, %v", protocol, got, err)
		}
	}
}

// TestFailedUpgradesLeaveNothing asks for WebSockets from a guest that has none.
func TestFailedUpgradesLeaveNothing(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(echo), edgeOptions{})
	for range 50 {
		ctx, cancel := context.WithTimeout(context.Background(), testutil.Patience)
		_, resp, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(e.panel(3000), "http")+"/x", nil)
		cancel()
		if err == nil || resp == nil || resp.StatusCode != 200 {
			t.Fatalf("got %v, %v", resp, err)
		}
	}
	testutil.Eventually(t, "no connection to the guest is left in use", func() bool { return e.podd.open() <= 40 })
}
