package caddymodule_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddytls"

	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

const ownHosts = "panel_host {sandbox}.panels.localhost"

func TestOwnHosts(t *testing.T) {
	guest := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Set-Cookie", "login=1; Path=/; Domain=panels.localhost")
		w.Header().Add("Set-Cookie", "cubepod-panel=evil; Path=/")
		echo(w, r)
	})
	e := startEdge(t, guest, edgeOptions{host: "*.panels.localhost", site: ownHosts})
	e.podd.listen(4000, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "port 4000") }))
	e.update(func(r *session.Record) { r.Ports[4000] = session.Port{} })
	own := fmt.Sprintf("%s.panels.localhost:%d", e.rec.ID, e.port)
	address := fmt.Sprintf("http://127.0.0.1:%d", e.port)
	path := strings.TrimPrefix(e.panel(3000), e.url)
	token := strings.TrimPrefix(path, "/panel/")
	same := []string{"Host", own, "Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "cors"}

	resp, _ := e.get(address+path+"/page", "Host", own, "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Dest", "iframe")
	if got := resp.Header.Values("Set-Cookie"); fmt.Sprint(got) != "[login=1; Path=/ cubepod-panel="+token+"; Path=/; HttpOnly; SameSite=Lax]" {
		t.Errorf("cookies: got %q", got)
	}
	if csp, acao := resp.Header.Get("Content-Security-Policy"), resp.Header.Get("Access-Control-Allow-Origin"); resp.StatusCode != 200 || csp != "" || acao != "" {
		t.Errorf("got %d, CSP %q, ACAO %q", resp.StatusCode, csp, acao)
	}
	cookie := "a=b; cubepod-panel=" + token + "; c=d"
	otherToken := e.token(e.claims(4000))
	tests := []struct {
		name, path string
		header     []string
		status     int
	}{
		{"another sandbox's host", path + "/", []string{"Host", fmt.Sprintf("%s.panels.localhost:%d", session.NewID(), e.port)}, 403},
		{"no sandbox's host", path + "/", []string{"Host", fmt.Sprintf("www.panels.localhost:%d", e.port)}, 403},
		{"in capitals", path + "/", []string{"Host", strings.ToUpper(own)}, 200},
		{"from the root", "/src/main.js", append(same, "Cookie", cookie), 200},
		{"from the root, by a program", "/src/main.js", []string{"Host", own, "Cookie", cookie}, 404},
		{"from the root, without a cookie", "/src/main.js", same, 404},
		{"another site's request", "/src/main.js", []string{"Host", own, "Sec-Fetch-Site", "same-site", "Cookie", cookie}, 404},
		{"another site's socket", "/", []string{"Host", own, "Origin", "http://evil.example", "Cookie", cookie}, 404},
		{"its own socket", "/", []string{"Host", own, "Origin", "http://" + own, "Cookie", cookie}, 200},
		{"a page without a cookie", "/x.js?y", append(same, "Referer", "http://"+own+path+"/page"), 307},
		{"a page of the other port", "/x.js?y", append(same, "Cookie", cookie, "Referer", "http://"+own+"/panel/"+otherToken+"/page"), 307},
		{"the cookie on another host", "/", []string{"Host", fmt.Sprintf("%s.panels.localhost:%d", session.NewID(), e.port), "Sec-Fetch-Site", "same-origin", "Cookie", cookie}, 403},
	}
	for _, tt := range tests {
		resp, body := e.get(address+tt.path, tt.header...)
		if resp.StatusCode != tt.status {
			t.Errorf("%s: got %d %s, want %d", tt.name, resp.StatusCode, body, tt.status)
		}
		switch tt.status {
		case 200:
			if got := resp.Header.Get("X-Got-Cookie"); got != "" && got != "a=b; c=d" {
				t.Errorf("%s: the guest sees %q", tt.name, got)
			}
		case 307:
			if got := resp.Header.Get("Location"); !strings.HasPrefix(got, "/panel/") || !strings.HasSuffix(got, "/x.js?y") {
				t.Errorf("%s: got %q", tt.name, got)
			}
		}
	}
}

func TestGuestHost(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(echo), edgeOptions{site: "guest_host 3000"})
	e.podd.listen(4000, http.HandlerFunc(echo))
	e.update(func(r *session.Record) { r.Ports[4000] = session.Port{} })
	for port, want := range map[int]string{3000: "127.0.0.1:3000 http://127.0.0.1:3000", 4000: strings.TrimPrefix(e.url, "http://") + " null"} {
		resp, _ := e.get(e.panel(port)+"/", "Origin", "null")
		if got := resp.Header.Get("X-Host") + " " + resp.Header.Get("X-Got-Origin"); got != want {
			t.Errorf("port %d: got %q, want %q", port, got, want)
		}
	}
}

func TestCertificatePermission(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(echo), edgeOptions{})
	mod, err := caddy.ActiveContext().LoadModuleByID("tls.permission.cubepod", json.RawMessage(`{"panel_host":"{sandbox}.panels.example.com"}`))
	if err != nil {
		t.Fatal(err)
	}
	allowed := func(name string) bool {
		err := mod.(caddytls.OnDemandPermission).CertificateAllowed(t.Context(), name)
		if err != nil && !errors.Is(err, caddytls.ErrPermissionDenied) {
			t.Errorf("%s: got %v", name, err)
		}
		return err == nil
	}
	for name, want := range map[string]bool{
		string(e.rec.ID) + ".panels.example.com":        true,
		string(e.rec.ID) + ".panels.example.org":        false,
		"x." + string(e.rec.ID) + ".panels.example.com": false,
		string(session.NewID()) + ".panels.example.com": false,
		"panels.example.com":                            false,
	} {
		if got := allowed(name); got != want {
			t.Errorf("%s: got %v", name, got)
		}
	}
	e.update(func(r *session.Record) { r.State = session.Deleted })
	testutil.Eventually(t, "a deleted sandbox gets none", func() bool { return !allowed(string(e.rec.ID) + ".panels.example.com") })
}
