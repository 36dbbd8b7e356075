package main_test

import (
	"testing"

	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi/runtimetest"
)

// TestEngineRestarted restarts the engine under replicas. What ran runs again
// under its old URL and record, what was paused is paused, and in between nobody
// is told that a sandbox is gone.
func TestEngineRestarted(t *testing.T) {
	if testing.Short() {
		testutil.Skip(t, "starts an engine")
	}
	runtimetest.NeedDocker(t)
	testutil.NeedProgram(t, "dockerd")
	testutil.NeedProgram(t, "iptables")
	if !testutil.InOwnNetwork(t) {
		return
	}
	e := runtimetest.StartEngine(t, runtimetest.Image)
	c := clusterOn(t, "docker", "--network", "cubepodapi")
	one, two := c.replica(), c.replica()
	running, paused := one.create(""), one.create("")
	one.want(200, "POST", box(running, "/commands/run"), `{"command":"echo kept >f"}`)
	one.want(204, "POST", box(paused, "/pause"), "")

	e.Stop()
	for _, call := range []string{"/commands/run", "/desktop/start"} {
		r, err := two.try(t.Context(), "POST", box(running, call), `{"command":"true"}`)
		if err != nil || r.status != 502 && r.status != 503 {
			t.Errorf("%s without an engine: got %v, %v", call, r, err)
		}
	}
	two.want(503, "POST", box(paused, "/resume"), "{}")
	for id, want := range map[session.ID]session.State{running: session.Running, paused: session.Paused} {
		if got := c.state(id); got != want {
			t.Errorf("without an engine a sandbox is %s, want %s", got, want)
		}
	}
	if status, body := two.get("/ready"); status != 503 {
		t.Errorf("ready without an engine: %d %s", status, body)
	}

	e.Start(t)
	testutil.Eventually(t, "the sandbox is found again", func() bool {
		r, err := one.try(t.Context(), "POST", box(running, "/commands/run"), `{"command":"cat f"}`)
		return err == nil && r.status == 200 && r.field("output") == "kept\n"
	})
	if got := two.want(200, "GET", box(running, ""), ""); got.field("state") != "running" || got.field("incarnation") != "1" {
		t.Errorf("got %v", got)
	}
	two.want(201, "POST", box(paused, "/resume"), "{}")
	for _, id := range []session.ID{running, paused} {
		two.want(204, "DELETE", box(id, ""), "")
	}
}
