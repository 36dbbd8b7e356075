package sessionapi_test

import (
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/sessionapi"
	"github.com/cubeplexai/cubepod/sessionapi/redisstore"
)

// TestRoundTrips states how often the calls that matter go to Redis.
func TestRoundTrips(t *testing.T) {
	w := newWorld(t)
	w.rt.installCtl(t, `echo '{"status":"running"}'`)
	a := w.replica(sessionapi.Options{SweepInterval: time.Hour})
	id := a.create("")
	a.want(200, "POST", box(id, "/desktop/start"), "")
	// The janitor and the clock go there too, before their first long rest.
	if _, err := a.store.Time(t.Context()); err != nil {
		t.Fatal(err)
	}
	var trips redisstore.Trips
	a.store.Count(&trips)
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		want                     int64
	}{
		{"read", "GET", box(id), "", 200, 1},
		{"ports", "GET", box(id, "/ports"), "", 200, 1},
		{"command", "POST", box(id, "/commands/run"), `{"command":"true"}`, 200, 1},
		{"desktop status", "GET", box(id, "/desktop/status"), "", 200, 1},
		{"list", "GET", "/v2/sandboxes", "", 200, 2},
		{"start on a running desktop", "POST", box(id, "/desktop/start"), "", 200, 2},
		{"start with tokens that last longer", "POST", box(id, "/desktop/start"), `{"expiresInSeconds":80000}`, 200, 3},
		{"panel", "POST", box(id, "/panels"), `{"port":8080}`, 201, 2},
		{"panel of a new port", "POST", box(id, "/panels"), `{"port":8000}`, 201, 3},
	} {
		before := trips.Load()
		a.want(c.status, c.method, c.path, c.body)
		if got := trips.Load() - before; got != c.want {
			t.Errorf("%s: %d round trips, want %d", c.name, got, c.want)
		}
	}
}
