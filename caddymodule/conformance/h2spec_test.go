// Package conformance_test holds the edge against suites that nobody here
// wrote. It is a package of its own, so that who builds the module into their
// Caddy links none of them.
package conformance_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"github.com/redis/go-redis/v9"
	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	"github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"

	_ "github.com/cubeplexai/cubepod/caddymodule"
	"github.com/cubeplexai/cubepod/internal/keyfile"
	"github.com/cubeplexai/cubepod/internal/paneltoken"
	"github.com/cubeplexai/cubepod/internal/redisurl"
	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// answerIn is how long a server may take over one frame. A case that waits for
// nothing to happen takes as long.
const answerIn = 2 * time.Second

// TestH2spec runs h2spec, strict cases and all, against a panel and against a
// reverse_proxy of the same Caddy to the same backend: a panel fails no case
// that plain Caddy passes.
func TestH2spec(t *testing.T) {
	port, panel := startCaddy(t)
	var plain, ours map[string]error
	var wg sync.WaitGroup
	wg.Go(func() { plain = runH2spec(port, "/") })
	wg.Go(func() { ours = runH2spec(port, panel) })
	wg.Wait()
	passed := 0
	for name, err := range plain {
		switch {
		case err != nil && !errors.Is(err, spec.ErrSkipped):
			t.Logf("%s: plain Caddy: %q, the panel: %v", name, err, ours[name])
		case ours[name] != nil && err == nil:
			// A case may have met a busy machine: it has a second chance.
			if again := runH2spec(port, panel, name)[name]; again != nil {
				t.Errorf("%s: plain Caddy passes, a panel does not: %v", name, again)
			}
		case err == nil:
			passed++
		}
	}
	t.Logf("%d cases, plain Caddy and the panel both pass %d", len(plain), passed)
	if len(plain) < 100 || len(ours) != len(plain) || passed < len(plain)*9/10 {
		t.Errorf("%d and %d cases, %d passed: this proves nothing", len(plain), len(ours), passed)
	}
}

// runH2spec runs all cases, or those of the given names, against a path.
func runH2spec(port int, path string, only ...string) map[string]error {
	c := &config.Config{Host: "localhost", Port: port, Path: path, Timeout: answerIn, MaxHeaderLen: 4000, Strict: true, TLS: true, Insecure: true}
	results := map[string]error{}
	var walk func(g *spec.TestGroup)
	walk = func(g *spec.TestGroup) {
		for i, tc := range append(append([]*spec.TestCase{}, g.Tests...), g.StrictTests...) {
			name := fmt.Sprintf("%s/%d %s", g.ID(), i+1, tc.Desc)
			if len(only) > 0 && name != only[0] {
				continue
			}
			conn, err := spec.Dial(c)
			if err != nil {
				results[name] = err
				continue
			}
			results[name] = tc.Run(c, conn)
			conn.Close()
		}
		for _, sub := range g.Groups {
			walk(sub)
		}
	}
	for _, root := range []*spec.TestGroup{generic.Spec(), http2.Spec(), hpack.Spec()} {
		walk(root)
	}
	return results
}

// startCaddy starts a Caddy with a panels' path and, beside it, a plain proxy to
// the same backend. It gives its port and the path of a panel.
func startCaddy(t *testing.T) (port int, panel string) {
	t.Helper()
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // a request that breaks off is what some cases are about
		io.WriteString(w, "hello")
	}))
	t.Cleanup(backend.Close)
	dir, store := t.TempDir(), testutil.StartRedis(t)
	keys := map[string]keyfile.Keys{}
	for _, name := range []string{"panel", "tunnel"} {
		ks, err := keyfile.Ensure(filepath.Join(dir, name), name)
		if err != nil {
			t.Fatal(err)
		}
		keys[name] = ks
	}
	rec := &session.Record{ID: session.NewID(), State: session.Running, Gen: 1, Incarnation: 1,
		Ports: map[int]session.Port{3000: {Address: netip.MustParseAddrPort(backend.Listener.Addr().String())}}}
	write(t, store.URL, rec)
	signer, err := paneltoken.NewSigner(keys["panel"])
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	token, err := signer.Sign(paneltoken.Claims{Sandbox: string(rec.ID), Port: 3000, Gen: 1, IssuedAt: now, Expires: now.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().(*net.TCPAddr)
	ln.Close()
	js, _, err := caddyconfig.GetAdapter("caddyfile").Adapt(fmt.Appendf(nil, `{
	admin off
	persist_config off
	skip_install_trust
	auto_https disable_redirects
	default_bind 127.0.0.1
	storage file_system %[1]s/caddy
	https_port %[3]d
	log {
		output discard
	}
	cubepod {
		redis %[2]s
		panel_keys %[1]s/panel
		tunnel_key %[1]s/tunnel
		allow_upstream 127.0.0.1/32
		max_per_sandbox -1
	}
}
https://localhost:%[3]d {
	tls internal
	cubepod_panel
	reverse_proxy %[4]s
}
`, dir, store.URL, addr.Port, backend.Listener.Addr()), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := caddy.Load(js, true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	})
	panel = "/panel/" + token + "/"
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	for _, path := range []string{"/", panel} {
		testutil.Eventually(t, "Caddy has its certificate and answers", func() bool {
			resp, err := client.Get(fmt.Sprintf("https://localhost:%d%s", addr.Port, path))
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			return err == nil && string(body) == "hello"
		})
	}
	return addr.Port, panel
}

// write stores a record as the API does.
func write(t *testing.T, url string, rec *session.Record) {
	t.Helper()
	opts, err := redisurl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewUniversalClient(opts)
	defer rdb.Close()
	doc, err := rec.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := rdb.HSet(t.Context(), session.RecordKey(rec.ID), session.DocField, doc).Err(); err != nil {
		t.Fatal(err)
	}
}
