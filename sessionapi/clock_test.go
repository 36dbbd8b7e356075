package sessionapi_test

import (
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi"
)

// TestClockSkew has one replica five seconds early and one five seconds late.
func TestClockSkew(t *testing.T) {
	w := newWorld(t)
	skewed := func(by time.Duration) *replica {
		return w.replica(sessionapi.Options{
			Now: func() time.Time { return time.Now().Add(by) }, LeaseTTL: shortLease, SweepInterval: 50 * time.Millisecond,
		})
	}
	early, late := skewed(5*time.Second), skewed(-5*time.Second)
	const timeout = 3 * time.Second // less than the skew
	for _, c := range []struct {
		name            string
		creator, judges *replica
	}{{"early", early, late}, {"late", late, early}} {
		// Both have compared their clocks with the store's.
		testutil.Eventually(t, c.name+" replica knows the time", func() bool {
			id := c.creator.create(`,"timeout":300`)
			left := time.Until(c.creator.record(id).EndAt)
			c.creator.want(204, "DELETE", box(id), "")
			return left > 299*time.Second-5*time.Second/2 && left < 301*time.Second
		})
		id := c.creator.create(`,"timeout":3`)
		rec := c.creator.record(id)
		if left := rec.EndAt.Sub(rec.StartedAt); left != timeout {
			t.Errorf("%s: it lasts %v", c.name, left)
		}
		// The other one judges tokens and states by the same time.
		minted := c.creator.want(201, "POST", box(id, "/panels"), `{"port":8000}`).json(t)
		if got := c.judges.wake(id, minted["token"].(string)); got.status != 200 {
			t.Errorf("%s: wake: %s", c.name, got)
		}
		c.judges.want(204, "POST", box(id, "/pause"), "")
		c.judges.want(201, "POST", box(id, "/resume"), "")
		c.creator.want(204, "POST", box(id, "/timeout"), `{"timeout":1}`)
		testutil.Eventually(t, c.name+": it ends", func() bool { return c.judges.state(id) == "404" })
		if c.judges.record(id).State != session.Deleted {
			t.Error("there is no tombstone")
		}
	}
}
