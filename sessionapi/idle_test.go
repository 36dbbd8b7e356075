package sessionapi_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cubeplexai/cubepod/internal/redisurl"
	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi"
)

// TestPanelInputIsUse notes activity as the edge does, with no call of the API.
func TestPanelInputIsUse(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{SweepInterval: 20 * time.Millisecond})
	opts, err := redisurl.Parse(w.redis.URL)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(opts.Simple())
	t.Cleanup(func() { rdb.Close() })
	used, idle := a.create(`,"idleTimeout":2`), a.create(`,"idleTimeout":2`)
	input := func() {
		now := strconv.FormatInt(time.Now().Unix(), 10)
		if err := rdb.Set(t.Context(), session.ActivityKey(used), now, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
	}
	input()
	testutil.Eventually(t, "the idle one is paused", func() bool {
		input()
		return a.record(idle).State == session.Paused // reading it by a call would be use
	})
	if got := a.record(used).State; got != session.Running {
		t.Errorf("the used one is %s", got)
	}
	testutil.Eventually(t, "it is paused when nobody uses it", func() bool { return a.record(used).State == session.Paused })
}
