package caddymodule_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/cubeplexai/cubepod/internal/session"
)

// BenchmarkPanel is the whole way of a small request, beside that of a plain
// reverse_proxy in the same Caddy.
func BenchmarkPanel(b *testing.B) {
	small := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write(make([]byte, 1024)) })
	srv := httptest.NewServer(small)
	defer srv.Close()
	plain := freePort(b)
	e := startEdge(b, small, edgeOptions{
		global: "allow_upstream 127.0.0.0/8", quiet: true,
		after: fmt.Sprintf("http://localhost:%d {\nhandle_path /panel/* {\nuri path_regexp ^/[^/]+ \"\"\nreverse_proxy %s\n}\n}", plain, srv.Listener.Addr()),
	})
	e.update(func(r *session.Record) {
		r.Ports[3001] = session.Port{Address: netip.MustParseAddrPort(srv.Listener.Addr().String())}
	})
	token := e.token(e.claims(3001))
	for _, way := range []struct{ name, url string }{
		{"plain", fmt.Sprintf("http://localhost:%d/panel/%s/", plain, token)},
		{"direct", e.url + "/panel/" + token + "/"},
		{"tunnel", e.panel(3000) + "/"},
	} {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
			defer client.CloseIdleConnections()
			for b.Loop() {
				resp, err := client.Get(way.url)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
					b.Fatal(resp.Status, err)
				}
				resp.Body.Close()
			}
		})
	}
}
