package sessionapi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi"
	"github.com/cubeplexai/cubepod/sessionapi/runtimetest"
)

// TestFakeRuntime holds the runtime of these tests to what all runtimes do.
func TestFakeRuntime(t *testing.T) {
	runtimetest.RunLife(t, func(t *testing.T) sessionapi.Runtime { return newFakeRuntime(t) })
}

// TestDeadPoddIsNoticed has calls find podd's address dead. Nobody told the API
// before, and after the call the record says what is the matter.
func TestDeadPoddIsNoticed(t *testing.T) {
	w := newWorld(t)
	w.rt.installCtl(t, goodCtl)
	a := w.replica(sessionapi.Options{SweepInterval: time.Hour})
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/commands/run", `{"command":"true"}`},
		{"GET", "/files?path=/f", ""},
		{"GET", "/desktop/status", ""},
		{"POST", "/desktop/stop", ""},
	} {
		for _, slowly := range []bool{false, true} {
			id := a.create("")
			w.rt.linger(id, slowly)
			if slowly { // the runtime is still taking the rest down
				time.AfterFunc(300*time.Millisecond, func() { w.rt.linger(id, false) })
			}
			a.refused(502, "podd_unreachable", c.method, box(id, c.path), c.body)
			if rec := a.record(id); rec.State != session.Paused || !strings.Contains(rec.Reason, "ended by themselves") || rec.Endpoint != "" {
				t.Errorf("%s %s, slowly %v: got %+v", c.method, c.path, slowly, rec)
			}
			if got := a.call(c.method, box(id, c.path), c.body); got.status != 409 || !strings.Contains(string(got.body), "ended by themselves") {
				t.Errorf("%s %s again: got %s", c.method, c.path, got)
			}
			a.want(201, "POST", box(id, "/resume"), "{}")
			if rec := a.record(id); rec.State != session.Running || rec.Reason != "" {
				t.Errorf("resumed: got %+v", rec)
			}
			// A start of the desktop does what is needed by itself.
			w.rt.linger(id, slowly)
			if slowly {
				time.AfterFunc(300*time.Millisecond, func() { w.rt.linger(id, false) })
			}
			a.want(200, "POST", box(id, "/desktop/start"), "")
		}
	}
}

func TestRemovedFromOutside(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{})
	id, other := a.create(""), a.create("")
	w.rt.remove(id)
	w.rt.news <- id
	a.eventually(id, "failed")
	if reason := a.record(id).Reason; !strings.Contains(reason, "removed") || !strings.Contains(reason, "resumed") {
		t.Errorf("reason: %q", reason)
	}
	// What happens by the way must not make it anew, a resume does.
	a.refused(409, "sandbox_state", "POST", box(id, "/desktop/start"), "")
	a.refused(409, "sandbox_state", "POST", box(id, "/commands/run"), `{"command":"true"}`)
	a.want(201, "POST", box(id, "/resume"), "{}")
	if rec := a.record(id); rec.State != session.Running || rec.Reason != "" || rec.Incarnation != 2 {
		t.Errorf("got %+v", rec)
	}

	w.rt.remove(other)
	w.rt.news <- ""
	a.eventually(other, "failed")
	a.want(204, "DELETE", box(other), "")
	if boxes, _ := w.rt.count(); boxes != 1 {
		t.Errorf("%d boxes are left", boxes)
	}
}

func TestLostCannotBeResumed(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{})
	id := a.create("")
	w.rt.lose(id)
	w.rt.news <- id
	a.eventually(id, "failed")
	for range 2 {
		a.refused(409, "sandbox_state", "POST", box(id, "/resume"), "{}")
		if rec := a.record(id); rec.State != session.Failed || !strings.Contains(rec.Reason, "lost") {
			t.Errorf("got %+v", rec)
		}
	}
	a.want(204, "DELETE", box(id), "")
}

func TestFollowsMovedSandbox(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{})
	id := a.create("")
	// As after a restart of a container engine: the same incarnation runs, but
	// the record has its old address.
	e, err := a.store.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	right := e.Record.Endpoint
	e.Record.Endpoint = "127.0.0.1:1"
	if err := a.store.Write(t.Context(), sessionapi.Write{Entry: e}); err != nil {
		t.Fatal(err)
	}
	w.rt.news <- id
	testutil.Eventually(t, "the record has the new address", func() bool { return a.record(id).Endpoint == right })
	a.want(200, "POST", box(id, "/commands/run"), `{"command":"true"}`)
}

func TestOrphansAreDeleted(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{SweepInterval: 20 * time.Millisecond, AuditInterval: 50 * time.Millisecond})
	kept := a.create("")
	name, err := a.store.Deployment(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	orphan, foreign := runtimetest.NewSpec(), runtimetest.NewSpec()
	orphan.Deployment, foreign.Deployment = name, "another"
	for _, spec := range []sessionapi.Spec{orphan, foreign} {
		if _, err := w.rt.Start(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	testutil.Eventually(t, "the orphan is gone", func() bool { boxes, _ := w.rt.count(); return boxes == 2 })
	w.rt.podd(t, kept)
	w.rt.podd(t, foreign.ID)
}
