package sessionapi

import (
	"context"
	"sync"
	"time"

	"github.com/cubeplexai/cubepod/internal/session"
)

// pollInterval is how often a waiter looks by itself. It hears of changes; this
// is for those that were missed, and for leases that expire.
const pollInterval = 500 * time.Millisecond

// changes hands the store's news to those who wait for one sandbox.
type changes struct {
	mu    sync.Mutex // guards the fields below
	by    map[session.ID]map[*watch]struct{}
	feeds map[*feed]struct{}
}

// watch hears of changes of one sandbox from the moment it was made.
type watch struct {
	c    chan struct{} // holds one
	id   session.ID
	from *changes
}

func newChanges() *changes {
	return &changes{by: map[session.ID]map[*watch]struct{}{}, feeds: map[*feed]struct{}{}}
}

func (c *changes) watch(id session.ID) *watch {
	w := &watch{c: make(chan struct{}, 1), id: id, from: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by[id] == nil {
		c.by[id] = map[*watch]struct{}{}
	}
	c.by[id][w] = struct{}{}
	return w
}

func (w *watch) stop() {
	w.from.mu.Lock()
	defer w.from.mu.Unlock()
	delete(w.from.by[w.id], w)
	if len(w.from.by[w.id]) == 0 {
		delete(w.from.by, w.id)
	}
}

func (c *changes) notify(id session.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for f := range c.feeds {
		f.add(id)
	}
	for w := range c.by[id] {
		select {
		case w.c <- struct{}{}:
		default: // it has not yet looked after the last one
		}
	}
}

// wait returns after a change, or when it is time to look anyway.
func (w *watch) wait(ctx context.Context) error {
	t := time.NewTimer(pollInterval)
	defer t.Stop()
	select {
	case <-w.c:
	case <-t.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
