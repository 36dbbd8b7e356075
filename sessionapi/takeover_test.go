package sessionapi_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cubeplexai/cubepod/internal/redisurl"
	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi"
	"github.com/cubeplexai/cubepod/sessionapi/redisstore"
)

// TestTakeover has a replica die in each passing state, before and after the
// runtime did its part.
func TestTakeover(t *testing.T) {
	tests := []struct {
		state session.State
		runs  bool // what the runtime has
		want  string
	}{
		{session.Creating, true, "404"},
		{session.Creating, false, "404"},
		{session.Pausing, true, "paused"},
		{session.Pausing, false, "paused"},
		{session.Resuming, true, "running"},
		{session.Resuming, false, "running"},
		{session.Deleting, true, "404"},
		{session.Deleting, false, "404"},
	}
	w := newWorld(t)
	dead := w.store()
	for _, by := range []string{"caller", "janitor"} {
		a := w.replica(sessionapi.Options{LeaseTTL: shortLease})
		for _, tt := range tests {
			t.Run(fmt.Sprintf("%s %s %v", by, tt.state, tt.runs), func(t *testing.T) {
				id := a.create("")
				var lookAt time.Time
				if by == "janitor" {
					lookAt = time.Now().Add(shortLease)
				}
				lease := w.die(dead, id, tt.state, lookAt)
				if !tt.runs {
					w.rt.kill(id)
				}
				if by == "caller" {
					a.call("POST", box(id, "/commands/run"), `{"command":"true"}`)
					if got := a.state(id); got != tt.want {
						t.Errorf("got %s, want %s", got, tt.want)
					}
				} else {
					a.eventually(id, tt.want)
				}
				if err := dead.Renew(t.Context(), lease, time.Minute); !errors.Is(err, sessionapi.ErrLeaseLost) {
					t.Errorf("the dead one's lease: got %v", err)
				}
			})
		}
		a.service.Close()
	}
}

func TestLeaseIsKeptUpDuringSlowWork(t *testing.T) {
	w := newWorld(t)
	a, b := w.replica(sessionapi.Options{LeaseTTL: shortLease}), w.replica(sessionapi.Options{LeaseTTL: shortLease})
	id := a.create("")
	a.want(204, "POST", box(id, "/pause"), "")
	starts := w.rt.starts.Load()
	release := w.rt.hold()
	defer release()
	done := make(chan answer, 1)
	go func() {
		ans, _ := a.try(t.Context(), "POST", box(id, "/resume"), "")
		done <- ans
	}()
	b.eventually(id, "resuming")
	began := time.Now()
	testutil.Eventually(t, "several lease times pass", func() bool {
		if _, err := b.store.Acquire(t.Context(), id, shortLease); !errors.Is(err, sessionapi.ErrLeaseHeld) {
			t.Fatalf("got %v while the work goes on", err)
		}
		return time.Since(began) > 3*shortLease
	})
	release()
	if got := <-done; got.status != http.StatusCreated || w.rt.starts.Load() != starts+1 {
		t.Errorf("got %s, %d starts", got, w.rt.starts.Load()-starts)
	}
}

// TestTakeoverAndGoOn has callers that want something else than what the dead
// replica was at. The work must be done under a lease of its own.
func TestTakeoverAndGoOn(t *testing.T) {
	w := newWorld(t)
	// Nothing is renewed in time to hide a lease that is missing.
	a := w.replica(sessionapi.Options{LeaseTTL: time.Hour, SweepInterval: time.Hour})
	dead := w.store()
	for _, tt := range []struct {
		state      session.State
		path, want string
	}{
		{session.Pausing, "/resume", "running"},
		{session.Pausing, "/desktop/start", "running"},
		{session.Resuming, "/pause", "paused"},
		{session.Pausing, "", "404"},
	} {
		id := a.create("")
		w.die(dead, id, tt.state, time.Time{})
		release := w.rt.hold()
		done := make(chan struct{})
		go func() {
			defer close(done)
			method := "POST"
			if tt.path == "" {
				method = "DELETE"
			}
			a.try(t.Context(), method, box(id, tt.path), "")
		}()
		if tt.want == "running" {
			testutil.Eventually(t, "the start is at work", func() bool { return w.rt.waiting.Load() == 1 })
			if _, err := dead.Acquire(t.Context(), id, time.Minute); !errors.Is(err, sessionapi.ErrLeaseHeld) {
				t.Errorf("%s%s: got %v while the start goes on", tt.state, tt.path, err)
			}
		}
		release()
		<-done
		if got := a.state(id); got != tt.want {
			t.Errorf("%s%s: got %s, want %s", tt.state, tt.path, got, tt.want)
		}
	}
}

// die leaves a passing state behind, as a replica does that was killed.
func (w *world) die(dead *redisstore.Store, id session.ID, state session.State, lookAt time.Time) sessionapi.Lease {
	t := w.t
	t.Helper()
	lease, err := dead.Acquire(t.Context(), id, shortLease)
	if err != nil {
		t.Fatal(err)
	}
	e, err := dead.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	e.Record.State = state
	if err := dead.Write(t.Context(), sessionapi.Write{Entry: e, Lease: &lease, LookAt: lookAt}); err != nil {
		t.Fatal(err)
	}
	return lease
}

// TestLostLeaseEndsTheWork has a lease go to somebody else under a start: what
// runs then is theirs, and must not be stopped.
func TestLostLeaseEndsTheWork(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{LeaseTTL: shortLease})
	other := w.store()
	id := a.create("")
	a.want(204, "POST", box(id, "/pause"), "")
	stops := w.rt.stopCalls.Load()
	release := w.rt.hold()
	defer release()
	done := make(chan answer, 1)
	go func() {
		ans, _ := a.try(t.Context(), "POST", box(id, "/resume"), "")
		done <- ans
	}()
	a.eventually(id, "resuming")
	opts, _ := redisurl.Parse(w.redis.URL)
	raw := redis.NewClient(opts.Simple())
	defer raw.Close()
	if err := raw.Del(t.Context(), session.LeaseKey(id)).Err(); err != nil {
		t.Fatal(err)
	}
	theirs, err := other.Acquire(t.Context(), id, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the start is broken off", func() bool { return w.rt.waiting.Load() == 0 })
	release()
	if err := other.Release(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	if got := <-done; got.status != 201 {
		t.Errorf("got %s", got)
	}
	if n := w.rt.stopCalls.Load() - stops; n != 0 {
		t.Errorf("the sandbox was stopped %d times", n)
	}
}

func TestCloseGivesTheLeaseBack(t *testing.T) {
	w := newWorld(t)
	a, b := w.replica(sessionapi.Options{LeaseTTL: time.Hour}), w.replica(sessionapi.Options{})
	id := a.create("")
	a.want(204, "POST", box(id, "/pause"), "")
	release := w.rt.hold()
	defer release()
	done := make(chan answer, 1)
	go func() {
		ans, _ := a.try(t.Context(), "POST", box(id, "/resume"), "")
		done <- ans
	}()
	b.eventually(id, "resuming")
	a.service.Close()
	if got := <-done; got.status != 503 || got.code() != "shutting_down" {
		t.Errorf("got %s", got)
	}
	release()
	b.want(201, "POST", box(id, "/connect"), "")
}
