package caddymodule_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/coder/websocket"

	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// TestStrayUpgrade has a guest switch protocols though nobody asked it to.
func TestStrayUpgrade(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		io.Copy(io.Discard, conn)
	}), edgeOptions{})
	if status, code := e.status(e.panel(3000) + "/"); status != 502 || code != "upstream_failed" {
		t.Errorf("got %d %q", status, code)
	}
}

// activeSessions reads the gauge.
func activeSessions(t *testing.T) float64 {
	t.Helper()
	active := caddy.ActiveContext()
	families, err := active.GetMetricsRegistry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "cubepod_panel_active_sessions" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatal("no such gauge")
	return 0
}

// TestChurnLeavesNothing opens and ends many sockets, at the panel's root, as
// live-reload clients do: some say goodbye, some vanish.
func TestChurnLeavesNothing(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(wsEcho), edgeOptions{quiet: true})
	url := e.panel(3000) + "/"
	kept := e.dial(url)
	e.ping(kept, "x")
	if n := activeSessions(t); n != 1 {
		t.Errorf("one is open, the gauge says %v", n)
	}
	for i := range 200 {
		c := e.dial(url)
		e.ping(c, "x")
		if i%2 == 0 {
			c.Close(websocket.StatusNormalClosure, "")
		} else {
			c.CloseNow()
		}
	}
	testutil.Eventually(t, "only the one that stays is there", func() bool {
		return activeSessions(t) == 1 && e.podd.open() == 1
	})
	e.ping(kept, "x")
}

// TestEncodeLeavesEventsAlone has the operator compress the site.
func TestEncodeLeavesEventsAlone(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		for range 2 {
			io.WriteString(w, "data: "+strings.Repeat("x", 1000)+"\n\n")
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	}), edgeOptions{extra: "encode"})
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.panel(3000)+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept-Encoding", "gzip, zstd")
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Encoding"); got != "" {
		t.Errorf("events come as %s", got)
	}
	events := bufio.NewScanner(resp.Body)
	for range 2 {
		if !events.Scan() || !strings.HasPrefix(events.Text(), "data: x") || !events.Scan() {
			t.Fatalf("got %q, %v", events.Text(), events.Err())
		}
	}
}

// TestRetryAfterFailedDial gives a POST a second chance, body and all, where the
// operator asks for it and no connection came about.
func TestRetryAfterFailedDial(t *testing.T) {
	e := startEdge(t, nil, edgeOptions{site: "lb_try_duration 30s\nlb_try_interval 50ms"})
	answer := make(chan string, 1)
	panel := e.panel(3000)
	go func() { // ends with the request
		resp, err := client.Post(panel+"/", "text/plain", io.MultiReader(strings.NewReader("the body")))
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		answer <- fmt.Sprint(resp.StatusCode, " ", string(body))
	}()
	testutil.Eventually(t, "a dial failed", func() bool {
		active := caddy.ActiveContext()
		families, err := active.GetMetricsRegistry().Gather()
		if err != nil {
			return false
		}
		for _, f := range families {
			if f.GetName() == "cubepod_panel_dials_total" {
				return strings.Contains(f.String(), "port_closed")
			}
		}
		return false
	})
	e.podd.listen(3000, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }))
	if got := <-answer; got != "200 the body" {
		t.Errorf("got %q", got)
	}
}

// TestTwoSitesAndReloads uses the directive on two sites and reloads: the
// counters go on, and nothing is registered twice.
func TestTwoSitesAndReloads(t *testing.T) {
	second := freePort(t)
	e := startEdge(t, http.HandlerFunc(echo), edgeOptions{after: fmt.Sprintf("http://localhost:%d {\ncubepod_panel /other\n}", second)})
	count := func() (n float64) {
		active := caddy.ActiveContext()
		families, err := active.GetMetricsRegistry().Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "cubepod_panel_requests_total" {
				for _, m := range f.GetMetric() {
					n += m.GetCounter().GetValue()
				}
			}
		}
		return n
	}
	url := fmt.Sprintf("http://%s/other/%s/", net.JoinHostPort("localhost", fmt.Sprint(second)), e.token(e.claims(3000)))
	for i := range 3 {
		for _, url := range []string{e.panel(3000) + "/", url} {
			testutil.Eventually(t, "the sites answer after a reload", func() bool {
				resp, err := client.Get(url)
				if err != nil { // the old server may take a connection and close it
					return false
				}
				resp.Body.Close()
				return resp.StatusCode == 200
			})
		}
		if n := count(); n < float64(2*(i+1)) {
			t.Errorf("after %d rounds only %v requests are counted", i+1, n)
		}
		e.load(fmt.Sprint("again ", i))
	}
	e.update(func(r *session.Record) { r.Gen++ })
	testutil.Eventually(t, "both follow the one record", func() bool {
		resp, err := client.Get(url)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == 403
	})
}
