package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/redisurl"
	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi"
	"github.com/cubeplexai/cubepod/sessionapi/redisstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) (*redisstore.Store, *redis.Client, *testutil.Redis) {
	t.Helper()
	server := testutil.StartRedis(t)
	opts, err := redisurl.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	st := redisstore.New(opts)
	raw := redis.NewClient(opts.Simple())
	t.Cleanup(func() { st.Close(); raw.Close() })
	return st, raw, server
}

func newRecord() *session.Record {
	now := time.Now().UTC().Truncate(time.Millisecond)
	return &session.Record{ID: session.NewID(), Owner: "o", State: session.Creating, Gen: 1, Incarnation: 1, CreatedAt: now, EndAt: now.Add(time.Hour)}
}

func create(t *testing.T, st *redisstore.Store, rec *session.Record, ttl time.Duration) sessionapi.Lease {
	t.Helper()
	l, err := st.Create(t.Context(), rec, rec.EndAt, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func get(t *testing.T, st *redisstore.Store, id session.ID) sessionapi.Entry {
	t.Helper()
	e, err := st.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestWriteIsCompareAndSet(t *testing.T) {
	st, _, _ := open(t)
	rec := newRecord()
	create(t, st, rec, time.Minute)
	if _, err := st.Create(t.Context(), rec, rec.EndAt, time.Minute); err == nil {
		t.Error("the same id was made twice")
	}
	a, b := get(t, st, rec.ID), get(t, st, rec.ID)
	a.Record.Gen = 2
	if err := st.Write(t.Context(), sessionapi.Write{Entry: a}); err != nil {
		t.Fatal(err)
	}
	b.Record.Gen = 3
	if err := st.Write(t.Context(), sessionapi.Write{Entry: b}); !errors.Is(err, sessionapi.ErrChanged) {
		t.Errorf("got %v, want ErrChanged", err)
	}
	if got := get(t, st, rec.ID).Record.Gen; got != 2 {
		t.Errorf("got gen %d", got)
	}
	unknown := newRecord()
	for what, err := range map[string]error{
		"get":     func() error { _, err := st.Get(t.Context(), unknown.ID); return err }(),
		"write":   st.Write(t.Context(), sessionapi.Write{Entry: sessionapi.Entry{Record: unknown}}),
		"acquire": func() error { _, err := st.Acquire(t.Context(), unknown.ID, time.Minute); return err }(),
	} {
		if apierror.KindOf(err) != apierror.NotFound {
			t.Errorf("%s of an unknown id: got %v", what, err)
		}
	}
}

// TestConcurrentWrites has writers add up what none may lose.
func TestConcurrentWrites(t *testing.T) {
	st, _, _ := open(t)
	rec := newRecord()
	create(t, st, rec, time.Minute)
	const writers, rounds = 8, 20
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range rounds {
				for {
					e, err := st.Get(t.Context(), rec.ID)
					if err != nil {
						t.Error(err)
						return
					}
					e.Record.Gen++
					err = st.Write(t.Context(), sessionapi.Write{Entry: e})
					if err == nil {
						break
					}
					if !errors.Is(err, sessionapi.ErrChanged) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	if got := get(t, st, rec.ID).Record.Gen; got != 1+writers*rounds {
		t.Errorf("got %d, want %d", got, 1+writers*rounds)
	}
}

func TestLeaseFences(t *testing.T) {
	st, _, _ := open(t)
	rec := newRecord()
	old := create(t, st, rec, 100*time.Millisecond)
	if _, err := st.Acquire(t.Context(), rec.ID, time.Minute); !errors.Is(err, sessionapi.ErrLeaseHeld) {
		t.Errorf("got %v, want ErrLeaseHeld", err)
	}
	var now sessionapi.Lease
	testutil.Eventually(t, "the lease expires", func() (ok bool) {
		var err error
		now, err = st.Acquire(t.Context(), rec.ID, time.Minute)
		return err == nil
	})
	if now.Fence <= old.Fence {
		t.Errorf("fence %d after %d", now.Fence, old.Fence)
	}
	e := get(t, st, rec.ID)
	e.Record.State = session.Failed
	if err := st.Write(t.Context(), sessionapi.Write{Entry: e, Lease: &old}); !errors.Is(err, sessionapi.ErrLeaseLost) {
		t.Errorf("write under the old lease: got %v", err)
	}
	if err := st.Renew(t.Context(), old, time.Minute); !errors.Is(err, sessionapi.ErrLeaseLost) {
		t.Errorf("renew of the old lease: got %v", err)
	}
	if err := st.Release(t.Context(), old); err != nil {
		t.Errorf("release of the old lease: %v", err)
	}
	if _, err := st.Acquire(t.Context(), rec.ID, time.Minute); !errors.Is(err, sessionapi.ErrLeaseHeld) {
		t.Errorf("the old holder gave the new one's lease back: %v", err)
	}
	if err := st.Renew(t.Context(), now, time.Minute); err != nil {
		t.Error(err)
	}
	// The last write gives the lease back in the same step.
	if err := st.Write(t.Context(), sessionapi.Write{Entry: get(t, st, rec.ID), Lease: &now, Release: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Acquire(t.Context(), rec.ID, time.Minute); err != nil {
		t.Errorf("after the release: %v", err)
	}
}

func TestTombstoneExpires(t *testing.T) {
	st, raw, _ := open(t)
	rec := newRecord()
	l := create(t, st, rec, time.Minute)
	e := get(t, st, rec.ID)
	e.Record.State = session.Deleted
	if err := st.Write(t.Context(), sessionapi.Write{Entry: e, Lease: &l, Release: true, Expire: 300 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if got := get(t, st, rec.ID).Record.State; got != session.Deleted {
		t.Errorf("got %s", got)
	}
	testutil.Eventually(t, "the tombstone expires", func() bool {
		_, err := st.Get(t.Context(), rec.ID)
		return apierror.KindOf(err) == apierror.NotFound
	})
	if err := st.Forget(t.Context(), rec.ID); err != nil {
		t.Fatal(err)
	}
	if keys := raw.Keys(t.Context(), "*").Val(); len(keys) != 0 {
		t.Errorf("left: %v", keys)
	}
}

func TestListKeepsItsOrder(t *testing.T) {
	st, _, _ := open(t)
	var want []session.ID
	created := time.UnixMilli(1_800_000_000_000).UTC()
	for i := range 25 {
		rec := newRecord()
		rec.CreatedAt = created.Add(time.Duration(i/10) * time.Millisecond) // ten of a millisecond
		create(t, st, rec, time.Minute)
		want = append(want, rec.ID)
	}
	slices.SortFunc(want[:10], cmpDown)
	slices.SortFunc(want[10:20], cmpDown)
	slices.SortFunc(want[20:], cmpDown)
	want = slices.Concat(want[20:], want[10:20], want[:10])
	for _, n := range []int{1, 3, 10, 25, 100} {
		var got []session.ID
		var at sessionapi.Position
		for {
			page, err := st.List(t.Context(), at, n)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range page {
				got = append(got, p.ID)
			}
			if len(page) < n {
				break
			}
			at = page[len(page)-1]
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: got %v, want %v", n, got, want)
		}
	}
	recs, err := st.GetMany(t.Context(), []session.ID{want[0], session.NewID(), want[1]})
	if err != nil || len(recs) != 2 || recs[0].ID != want[0] || recs[1].ID != want[1] {
		t.Errorf("got %v, %v", recs, err)
	}
}

func cmpDown(a, b session.ID) int {
	if a > b {
		return -1
	}
	return 1
}

func TestDue(t *testing.T) {
	st, _, _ := open(t)
	now := time.Now()
	rec := newRecord()
	create(t, st, rec, time.Minute) // to be looked at in an hour
	due := func(in time.Duration) bool {
		t.Helper()
		ids, err := st.Due(t.Context(), now.Add(in), 10)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Contains(ids, rec.ID)
	}
	step := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if due(0) || !due(2*time.Hour) {
		t.Error("not due when its record says")
	}
	step(st.Hasten(t.Context(), rec.ID, now.Add(3*time.Hour)))
	if !due(2 * time.Hour) {
		t.Error("hasten put it off")
	}
	step(st.Write(t.Context(), sessionapi.Write{Entry: get(t, st, rec.ID), LookAt: now.Add(time.Minute)}))
	if !due(2 * time.Minute) {
		t.Error("a write did not bring it forward")
	}
	step(st.Postpone(t.Context(), rec.ID, now.Add(3*time.Hour)))
	if due(2*time.Hour) || !due(4*time.Hour) {
		t.Error("not postponed")
	}
	step(st.Postpone(t.Context(), rec.ID, time.Time{}))
	if due(1000 * time.Hour) {
		t.Error("still due")
	}
}

func TestWatchHearsOfWrites(t *testing.T) {
	st, _, server := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	heard := make(chan session.ID, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		st.Watch(ctx, func(id session.ID) { heard <- id })
	}()
	hears := func() {
		t.Helper()
		rec := newRecord()
		l := create(t, st, rec, time.Minute)
		testutil.Eventually(t, "a change is heard of", func() bool {
			// The first can be before the subscription.
			if err := st.Write(t.Context(), sessionapi.Write{Entry: get(t, st, rec.ID), Lease: &l}); err != nil {
				t.Fatal(err)
			}
			select {
			case id := <-heard:
				return id == rec.ID
			default:
				return false
			}
		})
	}
	hears()
	server.Stop(t)
	server.Start(t)
	testutil.Eventually(t, "the store is back", func() bool { return st.Ping(t.Context()) == nil })
	hears()
	cancel()
	<-done
}

func TestLead(t *testing.T) {
	st, _, _ := open(t)
	lead := func(who string, ttl time.Duration) bool {
		t.Helper()
		ok, err := st.Lead(t.Context(), who, ttl)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if !lead("a", time.Minute) || lead("b", time.Minute) || !lead("a", 50*time.Millisecond) {
		t.Error("there is not one leader")
	}
	testutil.Eventually(t, "another leads", func() bool { return lead("b", time.Minute) })
}

func TestActivity(t *testing.T) {
	st, _, _ := open(t)
	id := session.NewID()
	if at, err := st.Touched(t.Context(), id); err != nil || !at.IsZero() {
		t.Errorf("got %v, %v", at, err)
	}
	now := time.Now()
	if err := st.Touch(t.Context(), id, now, time.Minute); err != nil {
		t.Fatal(err)
	}
	if at, err := st.Touched(t.Context(), id); err != nil || at.Unix() != now.Unix() {
		t.Errorf("got %v, %v", at, err)
	}
}

func TestDownIsUnavailable(t *testing.T) {
	st, _, server := open(t)
	rec := newRecord()
	create(t, st, rec, time.Minute)
	server.Stop(t)
	_, getErr := st.Get(t.Context(), rec.ID)
	_, listErr := st.List(t.Context(), sessionapi.Position{}, 1)
	_, manyErr := st.GetMany(t.Context(), []session.ID{rec.ID})
	for what, err := range map[string]error{"get": getErr, "list": listErr, "many": manyErr, "ping": st.Ping(t.Context())} {
		e := apierror.From(err)
		if e.Kind != apierror.Unavailable || e.Code != "store_unavailable" || e.RetryAfter == 0 {
			t.Errorf("%s: got %v", what, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := st.Get(ctx, rec.ID); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that left: got %v", err)
	}
	server.Start(t)
	testutil.Eventually(t, "the record is there again", func() bool {
		e, err := st.Get(t.Context(), rec.ID)
		return err == nil && e.Record.ID == rec.ID
	})
	if got := fmt.Sprint(get(t, st, rec.ID).Rev); got != "1" {
		t.Errorf("rev %s", got)
	}
}

// TestBackAtOnce fails more calls than the client has connections, after which
// its pool dials only now and then.
func TestBackAtOnce(t *testing.T) {
	st, _, server := open(t)
	rec := newRecord()
	create(t, st, rec, time.Minute)
	server.Stop(t)
	var calls sync.WaitGroup
	for range 20 * runtime.GOMAXPROCS(0) {
		calls.Go(func() {
			if err := st.Ping(t.Context()); apierror.From(err).Code != "store_unavailable" {
				t.Errorf("without a server: got %v", err)
			}
		})
	}
	calls.Wait()
	server.Start(t)
	if _, err := st.Get(t.Context(), rec.ID); err != nil {
		t.Errorf("the first call after the server is back: %v", err)
	}
}
