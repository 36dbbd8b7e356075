package sessionapi_test

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi"
)

// TestNoSecretsInLogs sends secrets where clients that are wrong about the API
// send them. They come up in no log line, metric or answer.
func TestNoSecretsInLogs(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	w := newWorld(t)
	a := w.replica(sessionapi.Options{Logger: zap.New(core)})
	id := a.create("")
	minted := a.want(201, "POST", box(id, "/panels"), `{"port":3000}`).json(t)
	secret := tokenOf(t, minted["url"])
	routes := map[string]string{}
	for _, c := range []struct{ method, path, route string }{
		{"GET", "/panel/" + secret + "/", "(unknown)"},
		{"GET", "//panel/" + secret, "(unknown)"},
		{"PATCH", box(id, "?token="+secret), "(unknown)"},
		{"GET", "/v2/sandboxes?api_key=" + secret, "GET /v2/sandboxes"},
		{"GET", "/sandboxes?x=%zz" + secret, "GET /sandboxes"},
		{"GET", "/console/" + secret, "GET /console/"},
		{"GET", "/sandboxes/" + secret, "GET /sandboxes/{sandboxID}"},
		{"POST", "/sandboxes/" + secret + "/wake", "POST /sandboxes/{sandboxID}/wake"},
		{"PUT", box(id, "/ports/"+secret), "PUT /sandboxes/{sandboxID}/ports/{port}"},
		{"GET", box(id, "/commands/"+secret+"/status"), "GET /sandboxes/{sandboxID}/commands/{id}/status"},
	} {
		got := a.call(c.method, c.path, "")
		// The podd of these tests answers with the path it got.
		if strings.Contains(string(got.body), secret) && !strings.HasSuffix(c.path, "/status") {
			t.Errorf("%s %s answers %s", c.method, c.path, got)
		}
		routes[got.header.Get("X-Request-Id")] = c.route
	}
	w.rt.kill(id)
	a.call("GET", box(id, "/files?path="+secret), "")
	of := func(route string) int { return logs.FilterField(zap.String("route", route)).Len() }
	testutil.Eventually(t, "the last call is logged", func() bool { return of("GET /sandboxes/{sandboxID}/files") == 1 })

	seen := 0
	for _, e := range logs.All() {
		if line := fmt.Sprint(e.Message, e.ContextMap()); strings.Contains(line, secret) {
			t.Errorf("logged: %s", line)
		}
		if want, ok := routes[fmt.Sprint(e.ContextMap()["request_id"])]; ok {
			seen++
			if got := e.ContextMap()["route"]; got != want {
				t.Errorf("route %v, want %s", got, want)
			}
		}
		if e.ContextMap()["route"] == "GET /sandboxes/{sandboxID}/files" && e.ContextMap()["sandbox"] != string(id) {
			t.Errorf("the sandbox is not told: %v", e.ContextMap())
		}
	}
	if seen != len(routes) {
		t.Errorf("%d of %d calls are logged", seen, len(routes))
	}
	families, err := a.registry.Gather()
	if err != nil || strings.Contains(fmt.Sprint(families), secret) {
		t.Errorf("the metrics have it too, or %v", err)
	}
}
