package sessionapi

import (
	"context"
	"sync/atomic"
	"time"
)

// clockInterval is how often a replica compares its clock with the store's.
const clockInterval = 30 * time.Second

// clock tells the store's time, which is the same for all replicas: what one
// writes as a sandbox's end, another judges. Between two looks at the store it
// goes with this machine's own clock, whose error then does not matter.
type clock struct {
	own    func() time.Time
	offset atomic.Int64 // of the store's time from our own, in nanoseconds
}

func (c *clock) now() time.Time {
	return c.own().Add(time.Duration(c.offset.Load())).UTC()
}

func (c *clock) until(t time.Time) time.Duration { return t.Sub(c.now()) }

// set compares the clocks. The store's answer is from about the middle of the
// call.
func (c *clock) set(ctx context.Context, st Store) error {
	before := c.own()
	theirs, err := st.Time(ctx)
	if err != nil {
		return err
	}
	took := c.own().Sub(before)
	c.offset.Store(int64(theirs.Sub(before.Add(took / 2))))
	return nil
}

// follow keeps the clock right until ctx ends.
func (c *clock) follow(ctx context.Context, st Store) {
	tick := time.NewTicker(clockInterval)
	defer tick.Stop()
	for {
		_ = c.set(ctx, st) // a store that does not answer is noticed by others
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
