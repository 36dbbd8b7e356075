package caddymodule_test

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/cubeplexai/cubepod/internal/paneltoken"
	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// hears is a desktop's socket that tells what reaches it.
func hears(got chan<- string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			echo(w, r)
			return
		}
		got <- "extensions " + r.Header.Get("Sec-WebSocket-Extensions")
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionContextTakeover, Subprotocols: []string{"tty", "binary"}})
		if err != nil {
			return
		}
		defer c.CloseNow()
		for {
			_, b, err := c.Read(context.Background())
			if err != nil {
				return
			}
			got <- string(b)
			if c.Write(context.Background(), websocket.MessageBinary, []byte("picture")) != nil {
				return
			}
		}
	})
}

// viewPanel gives a view-only panel's URL.
func (e *edge) viewPanel(port int) string {
	e.t.Helper()
	c := e.claims(port)
	c.Mode = paneltoken.View
	return e.url + "/panel/" + e.token(c)
}

func (e *edge) say(c *websocket.Conn, message string) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testutil.Patience)
	defer cancel()
	if err := c.Write(ctx, websocket.MessageBinary, []byte(message)); err != nil {
		e.t.Fatal(err)
	}
}

func TestViewOnlyLooksOn(t *testing.T) {
	heard := map[int]chan string{8080: make(chan string, 100), 7681: make(chan string, 100)}
	e := startEdge(t, nil, edgeOptions{})
	for port, got := range heard {
		e.podd.listen(port, hears(got))
		e.rec.Ports[port] = session.Port{}
	}
	e.write(e.rec)
	next := func(port int) string {
		t.Helper()
		select {
		case m := <-heard[port]:
			return m
		case <-time.After(testutil.Patience):
			t.Fatal("nothing reaches the guest")
			return ""
		}
	}

	viewer := e.dial(e.viewPanel(8080)+"/websockify?x=y", "binary")
	e.say(viewer, "RFB 003.008\n\x01\x00")
	e.say(viewer, "\x04\x01\x00\x00\x00\x00\x00A")                                            // a key
	e.say(viewer, "\x05\x01\x00\x10\x00\x10\x03\x01\x00\x00\x00\x00\x00\x10\x00\x10\x05\x01") // a picture among pointers
	if got := next(8080); got != "extensions " {
		t.Errorf("extensions: got %q", got)
	}
	if got := next(8080); got != "RFB 003.008\n\x01\x01" {
		t.Errorf("the beginning: got %q", got)
	}
	if got := next(8080); got != "\x03\x01\x00\x00\x00\x00\x00\x10\x00\x10" {
		t.Errorf("got %q", got)
	}
	if _, b, err := viewer.Read(t.Context()); err != nil || string(b) != "picture" {
		t.Errorf("the picture: got %q, %v", b, err)
	}
	e.say(viewer, "\x00\x10\x00\x10\x07") // the pointer's rest, and what nobody knows
	if code, reason := e.closeStatus(viewer); code != 1008 || reason != "view_only" {
		t.Errorf("got %d %q", code, reason)
	}

	terminal := e.dial(e.viewPanel(7681)+"/ws", "tty")
	for _, m := range []string{`{"columns":80,"rows":24}`, "0rm -rf /\r", `1{"columns":1}`} {
		e.say(terminal, m)
	}
	if got := []string{next(7681), next(7681)}; got[1] != `{"columns":80,"rows":24}` {
		t.Errorf("got %q", got)
	}
	if _, b, err := terminal.Read(t.Context()); err != nil || string(b) != "picture" {
		t.Errorf("the output: got %q, %v", b, err)
	}
	e.say(terminal, "x") // ends it, so what came before it has been through the filter
	if code, _ := e.closeStatus(terminal); code != 1008 {
		t.Errorf("got %d", code)
	}
	if len(heard[7681]) > 0 {
		t.Errorf("the terminal got %q", <-heard[7681])
	}

	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="}
	for _, tt := range []struct {
		method, path string
		header       []string
		status       int
	}{
		{"GET", "/vnc.html", nil, 200},
		{"HEAD", "/", nil, 200},
		{"POST", "/", nil, 403},
		{"PUT", "/websockify", nil, 403},
		{"OPTIONS", "/", nil, 403},
		{"GET", "/other", upgrade, 403},
		{"GET", "/ws", upgrade, 403},
		{"GET", "/%77ebsockify", upgrade, 403},
		{"GET", "/websockify", []string{"Connection", "Upgrade", "Upgrade", "h2c"}, 403},
	} {
		if resp, _ := e.do(tt.method, e.viewPanel(8080)+tt.path, nil, tt.header...); resp.StatusCode != tt.status {
			t.Errorf("%s %s %v: got %d, want %d", tt.method, tt.path, tt.header, resp.StatusCode, tt.status)
		}
	}
}

// touched gives when activity was noted last, 0 for never.
func (e *edge) touched() int64 {
	n, _ := e.rdb.Get(context.Background(), session.ActivityKey(e.rec.ID)).Int64()
	return n
}

func TestActivity(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(echo), edgeOptions{})
	got := make(chan string, 100)
	e.podd.listen(8080, hears(got))
	e.update(func(r *session.Record) { r.Ports[8080], r.IdleSeconds = session.Port{}, 60 })
	panel := e.panel(3000) + "/"
	viewer := e.dial(e.panel(8080) + "/websockify")
	e.say(viewer, "RFB 003.008\n\x01\x01\x03\x01\x00\x00\x00\x00\x00\x10\x00\x10")
	if _, _, err := viewer.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.get(panel, "Sec-Fetch-Mode", "cors", "Sec-Fetch-Site", "same-origin")
	e.get(panel, "Sec-Fetch-Mode", "navigate", "Sec-Purpose", "prefetch")
	e.do(http.MethodOptions, panel, nil, "Origin", "null", "Access-Control-Request-Method", "PUT")
	// Another sandbox's, later than all of that, comes to be written.
	other := *e.rec
	other.ID = session.NewID()
	e.podd.serve(&other)
	e.write(&other)
	c := e.claims(3000)
	c.Sandbox = string(other.ID)
	e.get(e.url + "/panel/" + e.token(c) + "/")
	testutil.Eventually(t, "a program's request is noted", func() bool {
		return e.rdb.Exists(context.Background(), session.ActivityKey(other.ID)).Val() == 1
	})
	if at := e.touched(); at != 0 {
		t.Errorf("looking on was noted, %d", at)
	}
	e.say(viewer, "\x04\x01\x00\x00\x00\x00\x00A")
	testutil.Eventually(t, "a key is noted", func() bool { return e.touched() != 0 })
	if ttl := e.rdb.TTL(context.Background(), session.ActivityKey(e.rec.ID)).Val(); ttl <= time.Minute || ttl > 3*time.Minute {
		t.Errorf("it is kept for %v", ttl)
	}
}

// TestActivityIsFewWrites counts what reaches Redis for many requests.
func TestActivityIsFewWrites(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(echo), edgeOptions{})
	e.update(func(r *session.Record) { r.IdleSeconds = 60 })
	panel := e.panel(3000) + "/"
	for range 300 {
		e.get(panel)
	}
	testutil.Eventually(t, "it is noted", func() bool { return e.touched() != 0 })
	stats := e.rdb.Info(context.Background(), "commandstats").Val()
	_, set, _ := strings.Cut(stats, "cmdstat_set:calls=")
	n, err := strconv.Atoi(set[:strings.IndexByte(set, ',')])
	if err != nil || n > 10 {
		t.Errorf("%d writes, %v", n, err)
	}
}
