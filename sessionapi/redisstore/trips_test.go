package redisstore_test

import (
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/internal/redisurl"
	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi"
	"github.com/cubeplexai/cubepod/sessionapi/redisstore"
)

// TestRoundTrips states what each call costs.
func TestRoundTrips(t *testing.T) {
	server := testutil.StartRedis(t)
	opts, err := redisurl.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	st := redisstore.New(opts)
	t.Cleanup(func() { st.Close() })
	ctx := t.Context()
	rec := newRecord()
	lease := create(t, st, rec, time.Minute) // loads a script
	e := get(t, st, rec.ID)
	if err := st.Write(ctx, sessionapi.Write{Entry: e, LookAt: rec.EndAt}); err != nil { // loads another
		t.Fatal(err)
	}
	var trips redisstore.Trips
	st.Count(&trips)
	for _, c := range []struct {
		name string
		want int64
		call func() error
	}{
		{"get", 1, func() error { e, err = st.Get(ctx, rec.ID); return err }},
		{"get many", 1, func() error {
			_, err := st.GetMany(ctx, []session.ID{rec.ID, session.NewID(), session.NewID()})
			return err
		}},
		{"list", 1, func() error { _, err := st.List(ctx, sessionapi.Position{}, 100); return err }},
		{"write", 1, func() error { return st.Write(ctx, sessionapi.Write{Entry: e, LookAt: rec.EndAt, Lease: &lease}) }},
		{"create", 1, func() error { r := newRecord(); _, err := st.Create(ctx, r, r.EndAt, time.Minute); return err }},
		{"touch", 1, func() error { return st.Touch(ctx, rec.ID, time.Now(), time.Minute) }},
	} {
		before := trips.Load()
		if err := c.call(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := trips.Load() - before; got != c.want {
			t.Errorf("%s takes %d round trips, want %d", c.name, got, c.want)
		}
	}
}

// TestScriptsAreLoadedAgain has a server that lost its scripts, as one that was
// restarted or took over has.
func TestScriptsAreLoadedAgain(t *testing.T) {
	st, raw, _ := open(t)
	rec := newRecord()
	lease := create(t, st, rec, time.Minute)
	for range 2 {
		if err := raw.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if err := st.Write(t.Context(), sessionapi.Write{Entry: get(t, st, rec.ID), LookAt: rec.EndAt, Lease: &lease}); err != nil {
			t.Fatal(err)
		}
	}
	if got := get(t, st, rec.ID).Rev; got != 3 {
		t.Errorf("rev %d, want 3", got)
	}
}
