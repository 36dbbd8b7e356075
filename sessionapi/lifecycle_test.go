package sessionapi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi"
)

func TestLife(t *testing.T) {
	w := newWorld(t)
	a, b := w.replica(sessionapi.Options{}), w.replica(sessionapi.Options{})
	made := a.want(201, "POST", "/sandboxes", `{"templateID":"base","timeout":600,"metadata":{"user":"u1"},"envVars":{"A":"1","B":"2"},"unknownKey":[1]}`).json(t)
	id := session.ID(made["sandboxID"].(string))
	for k, want := range map[string]any{"templateID": "base", "state": "running", "clientID": "cubepod", "runtime": "fake", "autoPause": false} {
		if made[k] != want {
			t.Errorf("%s: got %v, want %v", k, made[k], want)
		}
	}
	if got := w.rt.podd(t, id).envs; got["A"] != "1" {
		t.Errorf("the terminal's environment is %v", got)
	}

	// Any replica serves it.
	if got := b.want(200, "GET", box(id), "").json(t); got["endAt"] != made["endAt"] || fmt.Sprint(got["metadata"]) != "map[user:u1]" {
		t.Errorf("got %v", got)
	}
	out := b.want(200, "POST", box(id, "/commands/run"), `{"command":"echo $A$B$C","envs":{"B":"3","C":"4"}}`).json(t)
	if out["output"] != "134\n" {
		t.Errorf("got %v: the sandbox's variables come first, the call's win", out["output"])
	}
	if got := a.want(200, "GET", "/v2/sandboxes?metadata=user%3Du1", "").body; len(got) < 10 {
		t.Errorf("got %s", got)
	}

	b.want(204, "POST", box(id, "/pause"), "")
	a.refused(409, "sandbox_state", "POST", box(id, "/pause"), "")
	a.refused(409, "sandbox_state", "POST", box(id, "/commands/run"), `{"command":"true"}`)
	a.refused(409, "sandbox_state", "POST", box(id, "/timeout"), `{"timeout":60}`)
	if n := w.rt.prepares.Load(); n != 1 {
		t.Errorf("podd prepared %d times for the stop", n)
	}
	if _, running := w.rt.count(); running != 0 || a.state(id) != "paused" {
		t.Errorf("%d running, state %s", running, a.state(id))
	}

	got := a.want(201, "POST", box(id, "/resume"), `{"timeout":1000}`).json(t)
	if got["state"] != "running" || got["incarnation"] != 2.0 || got["gen"] != 1.0 {
		t.Errorf("got %v", got)
	}
	b.refused(409, "sandbox_state", "POST", box(id, "/resume"), "{}")
	b.want(200, "POST", box(id, "/connect"), `{"timeout":60}`)
	if got := b.record(id); !got.EndAt.After(time.Now().Add(500 * time.Second)) {
		t.Error("connect brought the end forward")
	}
	if got := w.rt.podd(t, id).envs; got["A"] != "1" {
		t.Errorf("the terminal's environment is %v after a resume", got)
	}
	b.want(204, "POST", box(id, "/pause"), "")
	b.want(201, "POST", box(id, "/connect"), "")

	a.want(204, "DELETE", box(id), "")
	for _, r := range []*replica{a, b} {
		r.refused(404, "sandbox_not_found", "GET", box(id), "")
		r.refused(404, "sandbox_not_found", "DELETE", box(id), "")
		r.refused(404, "sandbox_not_found", "POST", box(id, "/resume"), "")
	}
	if boxes, _ := w.rt.count(); boxes != 0 {
		t.Error("the runtime still has it")
	}
	rec := a.record(id)
	if rec.State != session.Deleted || rec.Envs != nil || rec.Metadata != nil {
		t.Errorf("tombstone: %+v", rec)
	}
}

// many makes n calls at once, alternating between replicas, and gives their
// statuses in order.
func many(t *testing.T, n int, method, path, body string, rs ...*replica) []int {
	t.Helper()
	statuses := make([]int, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			a, err := rs[i%len(rs)].try(t.Context(), method, path, body)
			if err != nil {
				t.Error(err)
			}
			statuses[i] = a.status
		})
	}
	wg.Wait()
	slices.Sort(statuses)
	return statuses
}

func TestConcurrentCalls(t *testing.T) {
	w := newWorld(t)
	a, b := w.replica(sessionapi.Options{}), w.replica(sessionapi.Options{})
	if got := many(t, 12, "POST", "/sandboxes", `{"templateID":"base"}`, a, b); got[0] != 201 || got[11] != 201 {
		t.Fatalf("create: got %v", got)
	}
	if boxes, running := w.rt.count(); boxes != 12 || running != 12 {
		t.Errorf("got %d sandboxes, %d running", boxes, running)
	}
	id := a.create("")
	only := func(got []int, ok int, also ...int) {
		t.Helper()
		if !slices.Contains(got, ok) || slices.ContainsFunc(got, func(s int) bool { return s != ok && !slices.Contains(also, s) }) {
			t.Errorf("got %v, want %d (or %v for those that came later)", got, ok, also)
		}
	}
	starts := w.rt.starts.Load()
	for round := int64(1); round <= 3; round++ {
		only(many(t, 20, "POST", box(id, "/pause"), "", a, b), 204, 409)
		only(many(t, 20, "POST", box(id, "/resume"), "", a, b), 201, 409)
		if n := w.rt.stops.Load(); n != round {
			t.Fatalf("%d stops in %d rounds", n, round)
		}
		if n := w.rt.starts.Load() - starts; n != round {
			t.Fatalf("%d starts in %d rounds", n, round)
		}
	}
	only(many(t, 20, "DELETE", box(id), "", a, b), 204, 404)
	if n := w.rt.deletes.Load(); n != 1 {
		t.Errorf("%d deletes", n)
	}
}

func TestCallersWaitForAnothersWork(t *testing.T) {
	w := newWorld(t)
	a, b := w.replica(sessionapi.Options{}), w.replica(sessionapi.Options{})
	id := a.create("")
	a.want(204, "POST", box(id, "/pause"), "")
	release := w.rt.hold()
	defer release()
	results := make(chan answer, 2)
	call := func(r *replica, path, body string) {
		go func() {
			ans, _ := r.try(t.Context(), "POST", path, body)
			results <- ans
		}()
	}
	call(a, box(id, "/resume"), "")
	b.eventually(id, "resuming")
	call(b, box(id, "/commands/run"), `{"command":"echo hi"}`)
	release()
	for range 2 {
		if got := <-results; got.status != 201 && got.status != 200 {
			t.Errorf("got %s", got)
		}
	}
}

func TestClientLeaves(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{})
	release := w.rt.hold()
	defer release()
	leave := func(path, body string, arrived func() bool) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			a.try(ctx, "POST", path, body)
		}()
		testutil.Eventually(t, "the call is at work", arrived)
		cancel()
		<-done
	}
	ids := func() []sessionapi.Position {
		ps, err := a.store.List(t.Context(), sessionapi.Position{}, 10)
		if err != nil {
			t.Fatal(err)
		}
		return ps
	}
	// Nobody knows the id of a sandbox whose creator left.
	leave("/sandboxes", `{"templateID":"base"}`, func() bool { return len(ids()) == 1 })
	testutil.Eventually(t, "the sandbox is undone", func() bool { return len(ids()) == 0 })

	// A resume goes on.
	release()
	id := a.create("")
	a.want(204, "POST", box(id, "/pause"), "")
	release = w.rt.hold()
	defer release()
	leave(box(id, "/resume"), "", func() bool { return a.state(id) == "resuming" })
	release()
	a.eventually(id, "running")
}

func TestRuntimeFails(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{LeaseTTL: shortLease})
	broken := errors.New("no room")
	w.rt.fail(broken, nil)
	ans := a.call("POST", "/sandboxes", `{"templateID":"base"}`)
	if ans.status != 503 || ans.code() != "runtime_unavailable" || ans.header.Get("Retry-After") == "" {
		t.Errorf("create: got %s", ans)
	}
	w.rt.fail(nil, nil)
	id := a.create("")

	w.rt.fail(nil, broken)
	a.refused(503, "runtime_unavailable", "POST", box(id, "/pause"), "")
	w.rt.fail(nil, nil)
	a.eventually(id, "paused") // by the janitor

	w.rt.fail(broken, nil)
	a.refused(503, "runtime_unavailable", "POST", box(id, "/resume"), "")
	if got := a.state(id); got != "paused" {
		t.Errorf("after a resume that did not work: %s", got)
	}
	w.rt.fail(nil, nil)
	a.want(201, "POST", box(id, "/resume"), "")

	// One that ends by itself keeps its files and can be resumed.
	w.rt.kill(id)
	a.refused(502, "podd_unreachable", "POST", box(id, "/commands/run"), `{"command":"true"}`)
	if got := a.state(id); got != "paused" {
		t.Errorf("after its processes ended: %s", got)
	}
	a.want(201, "POST", box(id, "/resume"), "")
	w.rt.kill(id)
	a.want(201, "POST", box(id, "/resume"), "") // also when nobody noticed

	// One that the runtime lost is said to be lost.
	a.want(204, "POST", box(id, "/pause"), "")
	w.rt.lose(id)
	a.refused(409, "sandbox_state", "POST", box(id, "/resume"), "")
	if got := a.want(200, "GET", box(id), "").json(t); got["state"] != "failed" || got["reason"] == nil {
		t.Errorf("got %v", got)
	}
	a.want(204, "DELETE", box(id), "")
}

func TestPauseAll(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{})
	for range 5 {
		a.create("")
	}
	a.want(204, "DELETE", box(a.create("")), "")
	if err := a.service.PauseAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if boxes, running := w.rt.count(); boxes != 5 || running != 0 {
		t.Errorf("%d sandboxes, %d running", boxes, running)
	}
}

func TestAudit(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{AuditInterval: 100 * time.Millisecond, SweepInterval: 50 * time.Millisecond})
	dead, lost, fine := a.create(""), a.create(""), a.create("")
	w.rt.kill(dead)
	w.rt.lose(lost)
	a.eventually(dead, "paused")
	a.eventually(lost, "failed")
	if got := a.state(fine); got != "running" {
		t.Errorf("got %s", got)
	}
	// A list entry without a record goes, an entry that is missing comes back.
	if err := a.store.Postpone(t.Context(), fine, time.Time{}); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the entry is back", func() bool {
		ids, err := a.store.Due(t.Context(), time.Now().Add(time.Hour), 10)
		return err == nil && slices.Contains(ids, fine)
	})
}
