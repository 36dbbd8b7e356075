package sessionapi_test

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/cubeplexai/cubepod/sessionapi"
)

func TestRateLimit(t *testing.T) {
	a := newWorld(t).replica(sessionapi.Options{RateLimit: 0.5}) // one at a time, so that the test need not be fast
	a.want(200, "GET", "/sandboxes", "")
	got := a.want(http.StatusTooManyRequests, "GET", "/sandboxes", "")
	if secs, err := strconv.Atoi(got.header.Get("Retry-After")); err != nil || secs < 1 || secs > 2 || got.code() != "rate_limited" {
		t.Errorf("got %s, Retry-After %q", got, got.header.Get("Retry-After"))
	}
	// Others have limits of their own, and who shows no key has none to use up.
	a.as(bobKey).want(200, "GET", "/sandboxes", "")
	a.want(200, "GET", "/health", "")
	a.as("wrong").want(401, "GET", "/sandboxes", "")
}

func TestTemplateVariables(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{Templates: map[string]sessionapi.Template{
		"desktop": {Name: "desktop", Env: map[string]string{"A": "template", "B": "template"}},
	}})
	id := a.create(`,"envVars":{"B":"caller"}`)
	got := a.want(200, "POST", box(id, "/commands/run"), `{"command":"echo $A $B"}`).json(t)
	if got["output"] != "template caller\n" {
		t.Errorf("got %q", got["output"])
	}
	a.service.SetTemplates(map[string]sessionapi.Template{"other": {Name: "other"}})
	a.refused(404, "template_not_found", "POST", "/sandboxes", `{"templateID":"desktop"}`)
	a.want(201, "POST", "/sandboxes", `{"templateID":"other"}`)
	// The sandbox itself goes on.
	a.want(200, "POST", box(id, "/commands/run"), `{"command":"true"}`)
}
