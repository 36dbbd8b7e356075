package caddymodule_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// wsEcho sends back what it gets; of the offered protocols it knows "tty".
func wsEcho(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true, Subprotocols: []string{"tty"}})
	if err != nil {
		return
	}
	defer c.CloseNow()
	c.SetReadLimit(-1)
	for {
		kind, b, err := c.Read(context.Background())
		if err != nil {
			return
		}
		if err := c.Write(context.Background(), kind, b); err != nil {
			return
		}
	}
}

// dial opens a WebSocket that ends with t.
func (e *edge) dial(url string, protocols ...string) *websocket.Conn {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testutil.Patience)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(url, "http"), &websocket.DialOptions{HTTPClient: client, Subprotocols: protocols, HTTPHeader: http.Header{"Origin": {"http://else.example"}}})
	if err != nil {
		e.t.Fatal(err)
	}
	c.SetReadLimit(-1)
	e.t.Cleanup(func() { c.CloseNow() })
	return c
}

func (e *edge) ping(c *websocket.Conn, message string) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testutil.Patience)
	defer cancel()
	if err := c.Write(ctx, websocket.MessageBinary, []byte(message)); err != nil {
		e.t.Fatal(err)
	}
	_, got, err := c.Read(ctx)
	if err != nil || string(got) != message {
		e.t.Fatalf("got %d bytes, %v, want %d", len(got), err, len(message))
	}
}

// closeStatus reads until the edge closes, and gives the close frame's status.
func (e *edge) closeStatus(c *websocket.Conn) (websocket.StatusCode, string) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testutil.Patience)
	defer cancel()
	for {
		if _, _, err := c.Read(ctx); err != nil {
			var ce websocket.CloseError
			if !errors.As(err, &ce) {
				e.t.Fatalf("no close frame: %v", err)
			}
			return ce.Code, ce.Reason
		}
	}
}

func TestStreamEchoAndSubprotocol(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(wsEcho), edgeOptions{})
	c := e.dial(e.panel(3000)+"/ws", "binary", "tty")
	if c.Subprotocol() != "tty" {
		t.Errorf("the guest did not choose: got %q", c.Subprotocol())
	}
	for _, n := range []int{1, 125, 126, 65535, 65536, 1 << 20} {
		e.ping(c, string(randomBytes(n)))
	}
}

func TestStreamSurvivesReload(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(wsEcho), edgeOptions{})
	c := e.dial(e.panel(3000) + "/ws")
	e.ping(c, "before")
	for _, comment := range []string{"one", "two"} {
		e.load(comment)
		// The old server may take a connection and close it unserved.
		testutil.Eventually(t, "the reload happened", func() bool {
			resp, err := client.Get(e.url + "/reloaded")
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			return err == nil && string(body) == comment
		})
		e.ping(c, "after "+comment)
	}
	// The stream of a configuration long gone still ends with its sandbox.
	e.update(func(r *session.Record) { r.State = session.Deleted })
	if code, reason := e.closeStatus(c); code != 1008 || reason != "deleted" {
		t.Errorf("got %d %q", code, reason)
	}
}

func TestStreamEnds(t *testing.T) {
	tests := []struct {
		name   string
		change func(*session.Record)
		code   websocket.StatusCode
		reason string
	}{
		{"revoked", func(r *session.Record) { r.Gen++ }, 1008, "revoked"},
		{"deleted", func(r *session.Record) { r.State = session.Deleted }, 1008, "deleted"},
		{"paused", func(r *session.Record) { r.State = session.Paused }, 1001, "paused"},
		{"resumed elsewhere", func(r *session.Record) { r.Incarnation++ }, 1001, "paused"},
		{"unregistered", func(r *session.Record) { delete(r.Ports, 3000) }, 1008, "unregistered"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := startEdge(t, http.HandlerFunc(wsEcho), edgeOptions{})
			c := e.dial(e.panel(3000) + "/ws")
			e.ping(c, "x")
			e.update(tt.change)
			if code, reason := e.closeStatus(c); code != tt.code || reason != tt.reason {
				t.Errorf("got %d %q, want %d %q", code, reason, tt.code, tt.reason)
			}
		})
	}
}

func TestStreamEndsWithItsToken(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(wsEcho), edgeOptions{})
	claims := e.claims(3000)
	claims.Expires = time.Now().Truncate(time.Second).Add(3 * time.Second)
	c := e.dial(e.url + "/panel/" + e.token(claims) + "/ws")
	e.ping(c, "x")
	code, reason := e.closeStatus(c)
	if code != 1008 || reason != "expired" {
		t.Errorf("got %d %q", code, reason)
	}
	if early := time.Until(claims.Expires); early > 0 {
		t.Errorf("ended %v early", early)
	}
}

// TestStreamCloseFrameIsWhole revokes a panel while the guest is in the middle
// of frames too large for one write.
func TestStreamCloseFrameIsWhole(t *testing.T) {
	flood := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
		if err != nil {
			return
		}
		defer c.CloseNow()
		data := randomBytes(300_000)
		for c.Write(context.Background(), websocket.MessageBinary, data) == nil {
		}
	})
	e := startEdge(t, flood, edgeOptions{})
	c := e.dial(e.panel(3000) + "/ws")
	if _, _, err := c.Read(context.Background()); err != nil {
		t.Fatal(err)
	}
	e.update(func(r *session.Record) { r.Gen++ })
	if code, reason := e.closeStatus(c); code != 1008 || reason != "revoked" {
		t.Errorf("got %d %q", code, reason)
	}
}

// TestStreamEndsForAClientThatDoesNotRead shows that a stuck client cannot hold
// a stream beyond its end.
func TestStreamEndsForAClientThatDoesNotRead(t *testing.T) {
	gone := make(chan struct{})
	flood := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(gone)
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
		if err != nil {
			return
		}
		defer c.CloseNow()
		data := randomBytes(1 << 20)
		for c.Write(context.Background(), websocket.MessageBinary, data) == nil {
		}
	})
	e := startEdge(t, flood, edgeOptions{})
	e.dial(e.panel(3000) + "/ws")
	e.update(func(r *session.Record) { r.Gen++ })
	select {
	case <-gone:
	case <-time.After(testutil.Patience):
		t.Error("the guest's side is still open")
	}
}

func TestStreamEventsAtOnce(t *testing.T) {
	release := make(chan struct{})
	e := startEdge(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}), edgeOptions{})
	defer close(release)
	resp, err := client.Get(e.panel(3000) + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil || line != "data: 1\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	e.update(func(r *session.Record) { r.Gen++ })
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the stream ended as if it were complete")
	}
}

func TestStreamClientCloses(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(wsEcho), edgeOptions{})
	c := e.dial(e.panel(3000) + "/ws")
	e.ping(c, "x")
	if err := c.Close(websocket.StatusNormalClosure, "bye"); err != nil {
		t.Errorf("the guest's close frame did not come back: %v", err)
	}
}
