// Package idlock lets one caller at a time work on a sandbox, inside one program.
// Between programs the sandbox's lease does that.
package idlock

import (
	"context"
	"sync"

	"github.com/cubeplexai/cubepod/internal/session"
)

// Locks is a lock for each sandbox. The zero value is ready to use.
type Locks struct {
	mu sync.Mutex // guards the fields below
	m  map[session.ID]*lock
}

type lock struct {
	held  chan struct{} // has room for the one holder
	users int           // holder and waiters
}

// Acquire waits for id's lock, at most until ctx ends.
func (l *Locks) Acquire(ctx context.Context, id session.ID) (release func(), err error) {
	l.mu.Lock()
	if l.m == nil {
		l.m = make(map[session.ID]*lock)
	}
	k := l.m[id]
	if k == nil {
		k = &lock{held: make(chan struct{}, 1)}
		l.m[id] = k
	}
	k.users++
	l.mu.Unlock()

	forget := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.users--; k.users == 0 {
			delete(l.m, id)
		}
	}
	select {
	case k.held <- struct{}{}:
		return func() { <-k.held; forget() }, nil
	case <-ctx.Done():
		forget()
		return nil, context.Cause(ctx)
	}
}
