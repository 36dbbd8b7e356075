package caddymodule_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// TestNoTokenAnywhere sends a token by every way there is, with all logs at
// DEBUG and credentials shown, and looks for it in all that the edge writes.
func TestNoTokenAnywhere(t *testing.T) {
	guest := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Query", r.URL.RawQuery)
		w.Header().Set("X-Original-Uri", r.Header.Get("X-Original-Uri"))
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.Header().Set("Set-Cookie", "back="+r.URL.Query().Get("to"))
		switch r.URL.Path {
		case "/breaks":
			panic(http.ErrAbortHandler)
		case "/half":
			w.Header().Set("Content-Length", "1000")
			io.WriteString(w, "half")
		case "/ws":
			wsEcho(w, r)
		}
	})
	e := startEdge(t, guest, edgeOptions{
		tls: true, auto: "disable_certs", format: "format cubepod_token"}.withRedirects(t))
	token := e.token(e.claims(3000))
	panel := e.url + "/panel/" + token
	secret := token[20:60]
	escaped := strings.ReplaceAll("/panel/"+token+"/x", "/", "%2F")

	resp, _ := e.get(panel+"/page?to=/panel/"+token+"/next&path="+escaped, "Referer", panel+"/", "X-Original-Uri", "/panel/"+token+"/page", "Cookie", "back="+panel)
	for name, want := range map[string]string{
		"X-Query": "to=/panel/" + token + "/next&path=" + escaped, "X-Original-Uri": "/panel/" + token + "/page", "Location": "/panel/" + token + "/next",
	} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s reaches nobody as it is: got %q", name, got)
		}
	}
	for _, path := range []string{"", "/breaks", "/panel/" + token + "/x", "/..%2f" + token} {
		e.get(panel + path)
	}
	if resp, err := client.Get(panel + "/half"); err == nil {
		io.Copy(io.Discard, resp.Body) // breaks off
		resp.Body.Close()
	}
	e.ping(e.dial(panel+"/ws?t="+token), "x")
	overHTTP3(t, panel+"/ws").close()
	for _, call := range [][3]string{
		{"GET", "/cubepod/sessions", ""}, {"GET", "/cubepod/cache", ""}, {"POST", "/cubepod/revoke", `{"sandbox":"` + token + `"}`},
	} {
		if _, body := admin(t, call[0], call[1], call[2]); body == "" || strings.Contains(body, secret) {
			t.Errorf("%s %s: got %q", call[0], call[1], body)
		}
	}
	e.get(panel[:len(panel)-3] + "AAA/x")
	e.get(e.url + "/PANEL/" + token + "/")
	e.get(e.url + "/nothing/" + token + "/")
	plain := fmt.Sprintf("http://localhost:%d/panel/%s/x", e.options.redirects, token)
	if resp, _ := e.get(plain); resp.StatusCode != 308 {
		t.Errorf("the redirect: got %d", resp.StatusCode)
	}
	e.update(func(r *session.Record) { delete(r.Ports, 3000) })
	testutil.Eventually(t, "the port is gone", func() bool { s, _ := e.status(panel + "/"); return s == 404 })
	for _, kind := range []string{"navigate", "cors"} {
		if _, body := e.get(panel+"/err", "Sec-Fetch-Mode", kind); strings.Contains(body, secret) {
			t.Errorf("an error's body has it: %s", body)
		}
	}
	e.get(panel + "/last")

	var log []byte
	testutil.Eventually(t, "the last request is in the log", func() bool {
		var err error
		log, err = os.ReadFile(e.logfile)
		return err == nil && bytes.Contains(log, []byte("/panel/REDACTED/last"))
	})
	for _, line := range bytes.Split(log, []byte("\n")) {
		if bytes.Contains(line, []byte(secret)) {
			t.Errorf("the token is in: %s", line)
		}
	}
	for _, name := range []string{"http.log.access", "http.handlers.reverse_proxy", "http.handlers.cubepod_panel", "upstream roundtrip", fmt.Sprintf(`"host":"localhost:%d"`, e.options.redirects)} {
		if !bytes.Contains(log, []byte(name)) {
			t.Errorf("nothing of %s is in the log: this proves nothing", name)
		}
	}
	active := caddy.ActiveContext()
	families, err := active.GetMetricsRegistry().Gather()
	if err != nil || len(families) == 0 {
		t.Fatalf("no metrics: %v", err)
	}
	for _, f := range families {
		if s := f.String(); strings.Contains(s, secret) || strings.Contains(s, string(e.rec.ID)) {
			t.Errorf("metric %s", s)
		}
	}
}

// withRedirects has Caddy redirect from HTTP, on a port of its own.
func (o edgeOptions) withRedirects(t *testing.T) edgeOptions {
	o.redirects = freePort(t)
	o.caddy = fmt.Sprintf("http_port %d\nservers {\nlog_credentials\n}\nmetrics {\nper_host\n}", o.redirects)
	return o
}
