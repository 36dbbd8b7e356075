package sessionapi_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi"
)

func pooled(warm int, env map[string]string) sessionapi.Options {
	return sessionapi.Options{
		Templates:     map[string]sessionapi.Template{"desktop": {Name: "desktop", Warm: warm, Env: env}},
		SweepInterval: 20 * time.Millisecond, AuditInterval: 50 * time.Millisecond, LeaseTTL: shortLease,
	}
}

// ready waits until there are n standbys, and gives them.
func (r *replica) ready(n int) []session.ID {
	r.t.Helper()
	var ids []session.ID
	testutil.Eventually(r.t, fmt.Sprintf("there are %d standbys", n), func() bool {
		var err error
		ids, err = r.store.Standbys(r.t.Context(), "desktop")
		return err == nil && len(ids) == n
	})
	return ids
}

func TestPool(t *testing.T) {
	w := newWorld(t)
	a, b := w.replica(pooled(2, map[string]string{"A": "template"})), w.replica(pooled(2, map[string]string{"A": "template"}))
	standbys := a.ready(2)
	for _, caller := range []*replica{a, a.as(rootKey)} {
		if got := caller.want(200, "GET", "/sandboxes", "").body; strings.TrimSpace(string(got)) != "[]" {
			t.Errorf("standbys are listed: %s", got)
		}
		caller.refused(404, "sandbox_not_found", "GET", box(standbys[0]), "")
		caller.refused(404, "sandbox_not_found", "DELETE", box(standbys[0]), "")
	}

	before := time.Now()
	id := b.create(`,"timeout":77,"metadata":{"k":"v"},"envVars":{"B":"caller"},"idleTimeout":60,"autoPause":true`)
	if id != standbys[0] && id != standbys[1] {
		t.Errorf("%s is none of the standbys %v", id, standbys)
	}
	rec := a.record(id)
	if rec.Owner != "alice" || rec.Metadata["k"] != "v" || rec.TimeoutSeconds != 77 || rec.IdleSeconds != 60 || !rec.AutoPause ||
		rec.CreatedAt.Before(before.Add(-time.Second)) || rec.EndAt.Sub(rec.CreatedAt) != 77*time.Second {
		t.Errorf("got %+v", rec)
	}
	got := a.want(200, "POST", box(id, "/commands/run"), `{"command":"echo $A $B"}`).json(t)
	if got["output"] != "template caller\n" {
		t.Errorf("variables: %q", got["output"])
	}
	b.as(bobKey).refused(404, "sandbox_not_found", "GET", box(id), "")
	a.ready(2) // there is a new one
}

func TestPoolGivesEachToOne(t *testing.T) {
	w := newWorld(t)
	a, b := w.replica(pooled(5, nil)), w.replica(pooled(5, nil))
	a.ready(5)
	seen := map[session.ID]bool{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			id := []*replica{a, b}[i%2].create("")
			mu.Lock()
			defer mu.Unlock()
			if seen[id] {
				t.Errorf("%s was given twice", id)
			}
			seen[id] = true
		})
	}
	wg.Wait()
}

func TestPoolMendsItself(t *testing.T) {
	w := newWorld(t)
	a := w.replica(pooled(1, nil))
	// One that ended by itself is replaced.
	dead := a.ready(1)[0]
	w.rt.kill(dead)
	testutil.Eventually(t, "there is another standby", func() bool {
		ids, err := a.store.Standbys(t.Context(), "desktop")
		return err == nil && len(ids) == 1 && ids[0] != dead
	})
	testutil.Eventually(t, "the dead one is gone", func() bool { return a.record(dead).State == session.Deleted })

	// One that is on no list is found again.
	lost := a.ready(1)[0]
	if _, err := a.store.Withdraw(t.Context(), "desktop", lost); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "there is one, and one only", func() bool { boxes, _ := w.rt.count(); return boxes == 1 && len(a.ready(1)) == 1 })

	// One of an old template is replaced, and none are wanted at last.
	old := a.ready(1)[0]
	a.service.SetTemplates(map[string]sessionapi.Template{"desktop": {Name: "desktop", Warm: 1, Image: "new"}})
	testutil.Eventually(t, "the old one is gone", func() bool { return a.record(old).State == session.Deleted && a.ready(1)[0] != old })
	a.service.SetTemplates(map[string]sessionapi.Template{"desktop": {Name: "desktop"}})
	testutil.Eventually(t, "there are none", func() bool { boxes, _ := w.rt.count(); return boxes == 0 })
}

// TestPoolSparesWhatIsTaken offers a sandbox that is somebody's.
func TestPoolSparesWhatIsTaken(t *testing.T) {
	w := newWorld(t)
	opts := pooled(0, nil)
	a := w.replica(opts)
	mine := a.create("")
	if err := a.store.Offer(t.Context(), "desktop", mine); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "it is off the list", func() bool {
		ids, err := a.store.Standbys(t.Context(), "desktop")
		return err == nil && len(ids) == 0
	})
	a.service.SetTemplates(map[string]sessionapi.Template{"desktop": {Name: "desktop", Warm: 1}})
	a.ready(1)
	if err := a.store.Offer(t.Context(), "desktop", mine); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if id := a.create(""); id == mine {
			t.Error("it was given to another")
		}
	}
	if got := a.state(mine); got != "running" {
		t.Errorf("it is %s", got)
	}
}
