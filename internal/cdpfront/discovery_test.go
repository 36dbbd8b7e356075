package cdpfront_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubeplexai/cubepod/internal/cdpfront"
)

// newFront serves a front of the browser at upstream.
func newFront(t *testing.T, front *cdpfront.Front) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(front)
	srv.Client().Transport.(*http.Transport).DisableKeepAlives = true
	t.Cleanup(func() {
		front.Close()
		srv.Close()
	})
	return srv
}

func TestDiscoveryNamesTheClientsAddress(t *testing.T) {
	var asked string
	browser := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.RequestURI
		if r.Header.Get("X-Forwarded-Prefix") != "" || r.Header.Get("X-Forwarded-Host") != "" {
			t.Errorf("the browser sees forwarding headers: %v", r.Header)
		}
		switch strings.TrimSuffix(r.URL.Path, "/") {
		case "/json/version":
			io.WriteString(w, `{"Browser":"Chrome/1","webSocketDebuggerUrl":"ws://`+r.Host+`/devtools/browser/b1"}`)
		case "/json/new":
			io.WriteString(w, `{"id":"T1","devtoolsFrontendUrl":"https://frontend.example/inspector.html?ws=`+r.Host+`/devtools/page/T1","webSocketDebuggerUrl":"ws://`+r.Host+`/devtools/page/T1"}`)
		default:
			io.WriteString(w, `[{"id":"T1","title":"\"webSocketDebuggerUrl\": \"ws://`+r.Host+`/x\" <b>&","url":"http://a.example/?ws=`+r.Host+`","n":12345678901234567890,"devtoolsFrontendUrl":"/devtools/inspector.html?ws=`+r.Host+`/devtools/page/T1&panel=x","webSocketDebuggerUrl":"ws://`+r.Host+`/devtools/page/T1"}]`)
		}
	}))
	defer browser.Close()
	upstream := browser.Listener.Addr().String()
	front := newFront(t, cdpfront.New(upstream, nil))
	direct := front.Listener.Addr().String()

	title := `"webSocketDebuggerUrl": "ws://` + upstream + `/x" <b>&`
	list := func(scheme, at, frontend string) any {
		return []any{map[string]any{
			"id": "T1", "title": title, "url": "http://a.example/?ws=" + upstream, "n": json.Number("12345678901234567890"),
			"devtoolsFrontendUrl":  frontend,
			"webSocketDebuggerUrl": scheme + "://" + at + "/devtools/page/T1",
		}}
	}
	version := func(url string) any {
		return map[string]any{"Browser": "Chrome/1", "webSocketDebuggerUrl": url}
	}
	edge := map[string]string{"X-Forwarded-Proto": "https", "X-Forwarded-Host": "panels.example.com", "X-Forwarded-Prefix": "/panel/a.b.c"}
	tests := []struct {
		name, method, path string
		header             map[string]string
		want               any
	}{
		{"version", "GET", "/json/version", nil, version("ws://" + direct + "/devtools/browser/b1")},
		{"version with a slash", "GET", "/json/version/", nil, version("ws://" + direct + "/devtools/browser/b1")},
		{"version through the edge", "GET", "/json/version", edge, version("wss://panels.example.com/panel/a.b.c/devtools/browser/b1")},
		{"version through the edge with a slash", "GET", "/json/version/", edge, version("wss://panels.example.com/panel/a.b.c/devtools/browser/b1")},
		{"prefix with a slash", "GET", "/json/version", map[string]string{"X-Forwarded-Prefix": "/p/"}, version("ws://" + direct + "/p/devtools/browser/b1")},
		{"two proxies", "GET", "/json/version", map[string]string{"X-Forwarded-Host": "outer:8443, inner", "X-Forwarded-Proto": "https, http"}, version("wss://outer:8443/devtools/browser/b1")},
		{"list", "GET", "/json", nil, list("ws", direct, "/devtools/inspector.html?ws="+direct+"/devtools/page/T1&panel=x")},
		{"list by its long name", "GET", "/json/list", nil, list("ws", direct, "/devtools/inspector.html?ws="+direct+"/devtools/page/T1&panel=x")},
		{"list through the edge", "GET", "/json/", edge, list("wss", "panels.example.com/panel/a.b.c", "/panel/a.b.c/devtools/inspector.html?wss=panels.example.com/panel/a.b.c/devtools/page/T1&panel=x")},
		{"new", "PUT", "/json/new?https://a.example/?x=1;2&y=%zz", edge, map[string]any{
			"id": "T1", "devtoolsFrontendUrl": "https://frontend.example/inspector.html?wss=panels.example.com/panel/a.b.c/devtools/page/T1",
			"webSocketDebuggerUrl": "wss://panels.example.com/panel/a.b.c/devtools/page/T1",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req, _ := http.NewRequest(tt.method, front.URL+tt.path, nil)
			for k, v := range tt.header {
				req.Header.Set(k, v)
			}
			resp, err := front.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			dec := json.NewDecoder(resp.Body)
			dec.UseNumber()
			var got any
			if err := dec.Decode(&got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
			if want := tt.method + " " + tt.path; asked != want {
				t.Errorf("the browser was asked %q, want %q", asked, want)
			}
		})
	}
}

// Whatever is no discovery document keeps every byte.
func TestOtherAnswersPassUnchanged(t *testing.T) {
	const body = `{"webSocketDebuggerUrl":"ws://127.0.0.1:1/x"}`
	tests := []struct {
		name, path, body string
		status           int
	}{
		{"protocol", "/json/protocol", body, 200},
		{"activate", "/json/activate/T1", "Target activated", 200},
		{"close", "/json/close/T1", "Target is closing", 200},
		{"a page", "/index.html", body, 200},
		{"refusal", "/json/new", "Using unsafe HTTP verb GET", 405},
		{"no document", "/json/version", "<html>", 200},
		{"nothing", "/json/version", "", 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			browser := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(tt.status)
				io.WriteString(w, tt.body)
			}))
			defer browser.Close()
			front := newFront(t, cdpfront.New(browser.Listener.Addr().String(), nil))
			resp, err := front.Client().Get(front.URL + tt.path)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if err != nil || string(got) != tt.body || resp.StatusCode != tt.status {
				t.Errorf("got %d %q (%v), want %d %q", resp.StatusCode, got, err, tt.status, tt.body)
			}
		})
	}
}
