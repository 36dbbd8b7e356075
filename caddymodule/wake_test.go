package caddymodule_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/internal/paneltoken"
	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// TestOneWakeForAll has a thousand programs wait for one paused sandbox.
func TestOneWakeForAll(t *testing.T) {
	var e *edge
	var calls atomic.Int32
	release := make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		<-release
		e.update(func(rec *session.Record) { rec.State = session.Running })
	}))
	defer api.Close()
	guest := httptest.NewServer(http.HandlerFunc(echo))
	defer guest.Close()
	e = startEdge(t, nil, edgeOptions{global: "allow_upstream 127.0.0.0/8\napi " + api.URL + "\nmax_per_sandbox -1"})
	e.update(func(r *session.Record) {
		r.State = session.Paused
		r.Ports[3000] = session.Port{Address: netip.MustParseAddrPort(guest.Listener.Addr().String())}
	})
	panel := e.panel(3000) + "/"
	const all = 1000
	var arrived, good atomic.Int32
	var wg sync.WaitGroup
	for range all {
		wg.Go(func() {
			r, err := http.NewRequest("GET", panel, nil)
			if err != nil {
				t.Error(err)
				return
			}
			arrived.Add(1)
			resp, err := client.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
			if resp.StatusCode == 200 {
				good.Add(1)
			}
		})
	}
	testutil.Eventually(t, "all have come and one calls", func() bool { return arrived.Load() == all && calls.Load() > 0 })
	close(release)
	wg.Wait()
	if good.Load() != all || calls.Load() != 1 {
		t.Errorf("%d of %d got the guest, %d calls", good.Load(), all, calls.Load())
	}
}

// TestWhoWakes is the contract's table for paused sandboxes.
func TestWhoWakes(t *testing.T) {
	var calls atomic.Int32
	var shown sync.Map // the links that came with calls
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		shown.Store(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), true)
		w.WriteHeader(http.StatusAccepted)
	}))
	defer api.Close()
	e := startEdge(t, http.HandlerFunc(echo), edgeOptions{global: "api " + api.URL, site: "wake_wait 50ms"})
	e.update(func(r *session.Record) { r.State = session.Paused })
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="}
	tests := []struct {
		name, method string
		header       []string
		wakes        bool
		code, kind   string
	}{
		{"a forgotten tab's poll", "GET", []string{"Sec-Fetch-Mode", "cors", "Sec-Fetch-Site", "same-origin"}, false, "sandbox_paused", "application/json"},
		{"a forgotten tab's image", "GET", []string{"Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image", "Accept", "text/html"}, false, "sandbox_paused", "application/json"},
		{"a forgotten tab's socket", "GET", append(upgrade, "Sec-Fetch-Mode", "websocket", "Origin", "null"), false, "sandbox_paused", "application/json"},
		{"an older browser's socket", "GET", append(upgrade, "Origin", "null"), false, "sandbox_paused", "application/json"},
		{"a prefetch", "GET", []string{"Sec-Fetch-Mode", "navigate", "Sec-Purpose", "prefetch"}, false, "sandbox_paused", "application/json"},
		{"a prerender", "GET", []string{"Sec-Fetch-Mode", "navigate", "Sec-Purpose", "prefetch;prerender"}, false, "sandbox_paused", "application/json"},
		{"a preflight", "OPTIONS", []string{"Origin", "null", "Access-Control-Request-Method", "PUT"}, false, "", ""},
		{"a person", "GET", []string{"Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}, true, "Starting the sandbox", "text/html"},
		{"a program", "GET", nil, true, "sandbox_starting", "application/json"},
		{"a program's socket", "GET", upgrade, true, "sandbox_starting", "application/json"},
		{"a program that posts", "POST", nil, true, "sandbox_starting", "application/json"},
	}
	for _, tt := range tests {
		calls.Store(0)
		resp, body := e.do(tt.method, e.panel(3000)+"/x", nil, tt.header...)
		if woke := calls.Load() > 0; woke != tt.wakes {
			t.Errorf("%s: woke %v", tt.name, woke)
		}
		if tt.code == "" {
			continue
		}
		if resp.StatusCode != 503 || !strings.Contains(body, tt.code) || !strings.HasPrefix(resp.Header.Get("Content-Type"), tt.kind) {
			t.Errorf("%s: got %d %s %s", tt.name, resp.StatusCode, resp.Header.Get("Content-Type"), body)
		}
		if refreshes := strings.Contains(body, `http-equiv="refresh"`); refreshes != (tt.kind == "text/html") {
			t.Errorf("%s: reloads itself: %v", tt.name, refreshes)
		}
		if tt.wakes && resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", tt.name)
		}
	}
	// What may not be seen, may not be woken either.
	old, port, view := e.claims(3000), e.claims(3001), e.claims(3000)
	old.Expires = old.Expires.Add(time.Hour)
	view.Mode = paneltoken.View
	bad := []string{"nonsense", e.token(old), e.token(port), e.token(view)}
	e.update(func(r *session.Record) { r.Gen++ })
	testutil.Eventually(t, "the old link is refused", func() bool {
		status, _ := e.status(e.url+"/panel/"+bad[1]+"/", "Sec-Fetch-Mode", "cors")
		return status == 403
	})
	for _, token := range bad {
		if resp, _ := e.get(e.url + "/panel/" + token + "/"); resp.StatusCode >= 500 {
			t.Errorf("got %d", resp.StatusCode)
		}
		if _, ok := shown.Load(token); ok {
			t.Error("a link that is not good wakes")
		}
	}
}

// TestWantedDesktopIsAwaited opens the viewer of a sandbox that runs again while
// its desktop does not yet: that is no dead end.
func TestWantedDesktopIsAwaited(t *testing.T) {
	var calls atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		w.WriteHeader(http.StatusAccepted)
	}))
	defer api.Close()
	closed := httptest.NewServer(http.NotFoundHandler())
	nobody := netip.MustParseAddrPort(closed.Listener.Addr().String())
	closed.Close()
	e := startEdge(t, nil, edgeOptions{global: "allow_upstream 127.0.0.0/8\napi " + api.URL})
	e.update(func(r *session.Record) {
		r.DesktopWanted = true
		r.Ports[8080] = session.Port{Address: nobody}
		r.Ports[3000] = session.Port{Address: nobody}
	})
	if status, code := e.status(e.panel(3000) + "/"); status != 502 || code != "port_closed" {
		t.Errorf("another port: got %d %s", status, code)
	}
	if status, code := e.status(e.panel(8080)+"/", "Sec-Fetch-Mode", "cors"); status != 502 || code != "port_closed" {
		t.Errorf("a page's request: got %d %s", status, code)
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("%d calls, want none", n)
	}
	resp, body := e.get(e.panel(8080)+"/", "Sec-Fetch-Mode", "navigate")
	if resp.StatusCode != 503 || !strings.Contains(body, `http-equiv="refresh"`) {
		t.Errorf("a person: got %d %s", resp.StatusCode, body)
	}
	if calls.Load() == 0 {
		t.Error("nobody asked for the desktop")
	}
}
