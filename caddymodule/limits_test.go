package caddymodule_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/cubeplexai/cubepod/internal/paneltoken"
	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

func TestCaps(t *testing.T) {
	for name, global := range map[string]string{"sandbox": "max_per_sandbox 2", "client": "max_per_client 2"} {
		t.Run(name, func(t *testing.T) {
			e := startEdge(t, http.HandlerFunc(wsEcho), edgeOptions{global: global})
			first, second := e.dial(e.panel(3000)+"/ws"), e.dial(e.panel(3000)+"/ws")
			e.ping(first, "x")
			e.ping(second, "x")
			resp, _ := e.get(e.panel(3000) + "/ws")
			if status, code := e.status(e.panel(3000) + "/ws"); status != 429 || code != "too_many_requests" || resp.Header.Get("Retry-After") == "" {
				t.Errorf("got %d %q", status, code)
			}
			e.ping(first, "still there")
			first.CloseNow()
			testutil.Eventually(t, "one that left makes room", func() bool {
				status, _ := e.status(e.panel(3000) + "/ws")
				return status != 429
			})
		})
	}
}

func TestFailedTokens(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(echo), edgeOptions{global: "max_failures 3"})
	expired := e.token(paneltoken.Claims{Sandbox: string(e.rec.ID), Port: 3000, Gen: 1, IssuedAt: e.claims(1).IssuedAt.Add(-7200e9), Expires: e.claims(1).IssuedAt.Add(-3600e9)})
	for range 5 {
		if status, code := e.status(e.url + "/panel/" + expired + "/"); status != 403 || code != "token_expired" {
			t.Errorf("an old tab: got %d %q", status, code)
		}
	}
	for i := range 5 {
		want, wantCode := 403, "token_invalid"
		if i >= 3 {
			want, wantCode = 429, "too_many_failures"
		}
		if status, code := e.status(e.url + "/panel/guess/"); status != want || code != wantCode {
			t.Errorf("guess %d: got %d %q", i, status, code)
		}
	}
	if status, code := e.status(e.panel(3000) + "/"); status != 200 {
		t.Errorf("a good link: got %d %q", status, code)
	}
}

// admin calls the admin endpoint's handler.
func admin(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	info, err := caddy.GetModule("admin.api.cubepod")
	if err != nil {
		t.Fatal(err)
	}
	for _, route := range info.New().(caddy.AdminRouter).Routes() {
		if route.Pattern != path {
			continue
		}
		w := httptest.NewRecorder()
		if err := route.Handler.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body))); err != nil {
			api, ok := err.(caddy.APIError)
			if !ok {
				t.Fatal(err)
			}
			return api.HTTPStatus, api.Error()
		}
		return w.Code, w.Body.String()
	}
	t.Fatalf("no route %s", path)
	return 0, ""
}

func TestAdmin(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(wsEcho), edgeOptions{})
	panel := e.panel(3000)
	c := e.dial(panel + "/ws")
	e.ping(c, "x")
	_, body := admin(t, "GET", "/cubepod/sessions", "")
	var open []struct {
		Sandbox        session.ID
		Port, Requests int
		Streams        int
	}
	if err := json.Unmarshal([]byte(body), &open); err != nil || len(open) != 1 || open[0].Sandbox != e.rec.ID || open[0].Port != 3000 || open[0].Streams != 1 {
		t.Errorf("sessions: got %s, %v", body, err)
	}
	_, body = admin(t, "GET", "/cubepod/cache", "")
	if !strings.Contains(body, string(e.rec.ID)) || !strings.Contains(body, `"in_use":true`) {
		t.Errorf("cache: got %s", body)
	}
	for _, bad := range []string{"", "{}", `{"sandbox":"../x"}`} {
		if status, _ := admin(t, "POST", "/cubepod/revoke", bad); status != 400 {
			t.Errorf("revoke %q: got %d", bad, status)
		}
	}
	if status, _ := admin(t, "GET", "/cubepod/revoke", ""); status != 405 {
		t.Errorf("got %d", status)
	}
	if _, body := admin(t, "POST", "/cubepod/revoke", `{"sandbox":"`+string(e.rec.ID)+`"}`); !strings.Contains(body, `"ended":1`) {
		t.Errorf("revoke: got %s", body)
	}
	if code, reason := e.closeStatus(c); code != 1008 || reason != "revoked" {
		t.Errorf("got %d %q", code, reason)
	}
	if status, code := e.status(panel + "/"); status != 403 || code != "token_revoked" {
		t.Errorf("got %d %q", status, code)
	}
}
