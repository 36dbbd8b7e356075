package sessionapi_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi"
)

// TestSilentPodd has a podd that takes calls and answers none. Each ends, and
// the sandbox can be got rid of.
func TestSilentPodd(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{PoddSilence: 500 * time.Millisecond})
	paused, deleted := a.create(""), a.create("")
	for _, id := range []session.ID{paused, deleted} {
		w.rt.podd(t, id).stopped.Store(true)
	}
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/commands/run", `{"command":"true"}`},
		{"GET", "/commands", ""},
		{"PUT", "/files?path=/f", "x"},
		{"GET", "/archive?path=/", ""},
		{"GET", "/desktop/status", ""},
		{"POST", "/desktop/stop", ""},
		{"POST", "/desktop/start", ""},
	} {
		got := a.call(c.method, box(paused, c.path), c.body)
		if got.status != 502 || got.code() != "podd_unreachable" || !strings.Contains(string(got.body), "stopped answering") {
			t.Errorf("%s %s: got %s", c.method, c.path, got)
		}
	}
	if got := a.state(paused); got != "running" {
		t.Errorf("it may go on in a moment, and is %s", got)
	}
	a.want(204, "POST", box(paused, "/pause"), "")
	a.want(204, "DELETE", box(deleted), "")
	a.want(201, "POST", box(paused, "/resume"), "{}")
	a.want(200, "POST", box(paused, "/commands/run"), `{"command":"true"}`)
	if boxes, running := w.rt.count(); boxes != 1 || running != 1 {
		t.Errorf("%d boxes, %d running", boxes, running)
	}
}

// TestPoddFallsSilent stops podd while an answer is on the way. A quiet one of a
// podd that lives goes on.
func TestPoddFallsSilent(t *testing.T) {
	w := newWorld(t)
	const silence = time.Second
	a := w.replica(sessionapi.Options{PoddSilence: silence})
	id := a.create("")
	podd := w.rt.podd(t, id)
	if got := a.want(200, "POST", box(id, "/commands/run"), `{"command":"sleep 2.5; echo slow"}`).json(t); got["output"] != "slow\n" {
		t.Errorf("a command that takes longer: got %v", got)
	}
	req, _ := http.NewRequestWithContext(t.Context(), "GET", a.url+box(id, "/commands/proc-1/logs?follow=1"), nil)
	req.Header.Set("X-API-Key", aliceKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, resp.Body)
	}()
	began := time.Now()
	testutil.Eventually(t, "more than the silence passes", func() bool { return time.Since(began) > 5*silence/2 })
	select {
	case <-done:
		t.Fatal("the quiet stream of a living podd was ended")
	default:
	}
	podd.stopped.Store(true)
	<-done // or the test ends by its own timeout
}
