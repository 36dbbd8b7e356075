package sessionapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/sessionapi"
)

// follow opens the stream of events and gives a function that returns the next
// event's name and data. The stream ends with t.
func (r *replica) follow() func() (event, data string) {
	t := r.t
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", r.url+"/v2/sandboxes/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-Key", r.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); resp.Body.Close() })
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || got != "text/event-stream" {
		t.Fatalf("got %d, %s", resp.StatusCode, got)
	}
	lines := bufio.NewScanner(resp.Body)
	return func() (event, data string) {
		t.Helper()
		for lines.Scan() {
			if v, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				event = v
			} else if v, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return event, v
			}
		}
		t.Fatalf("the stream ended: %v", lines.Err())
		return "", ""
	}
}

func TestEvents(t *testing.T) {
	w := newWorld(t)
	a, b := w.replica(sessionapi.Options{}), w.replica(sessionapi.Options{})
	next := b.follow() // of what happens at another replica
	if event, _ := next(); event != "ready" {
		t.Errorf("at first: %s", event)
	}
	a.as(bobKey).create("") // is not alice's to hear of
	id := a.create("")
	until := func(want string, is func(data string) bool) {
		t.Helper()
		for {
			event, data := next()
			var named struct {
				SandboxID session.ID
				Owner     string
			}
			if err := json.Unmarshal([]byte(data), &named); err != nil || named.SandboxID != id {
				t.Fatalf("got %s %s, %v", event, data, err)
			}
			if event == want && is(data) {
				return
			}
		}
	}
	state := func(s string) func(string) bool {
		return func(data string) bool { return strings.Contains(data, `"state":"`+s+`"`) }
	}
	until("sandbox", state("running"))
	a.want(204, "POST", box(id, "/pause"), "")
	until("sandbox", state("paused"))
	a.want(204, "DELETE", box(id), "")
	until("gone", func(string) bool { return true })
	a.as("wrong").want(401, "GET", "/v2/sandboxes/events", "")
}
