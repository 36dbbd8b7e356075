package sessionapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/session"
)

// held is a lease that somebody works under.
type held struct {
	s     *Service
	lease Lease
	life  context.Context // ends when the lease is lost or given back
}

// undoing gives the context for the way back after the work failed, when the
// work's own may be over. Without the lease there is no way back: the sandbox
// is somebody else's.
func (h *held) undoing() (context.Context, context.CancelFunc) {
	return context.WithTimeout(h.life, undoTimeout)
}

// arrived judges a record that nobody works on. It reports true when the caller
// has what it wants, and an error when it cannot have it.
type arrived func(*session.Record) (bool, error)

// step takes a sandbox, whose record is not in a passing state, to where the
// caller wants it.
type step func(ctx context.Context, h *held, rec *session.Record) error

// drive brings a sandbox to where there says it has arrived, and gives its
// record. While somebody else works on the sandbox it waits for the result;
// work that a dead replica left is finished or undone first; do runs when
// nobody else did it already.
func (s *Service) drive(ctx context.Context, id session.ID, there arrived, do step) (*session.Record, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.WaitTimeout, apierror.New(apierror.Conflict, "sandbox_state", "another call works on the sandbox and did not finish in time"))
	defer cancel()
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	defer context.AfterFunc(s.ctx, func() { leave(errClosed) })()
	w := s.changes.watch(id)
	defer w.stop()
	for {
		e, err := s.store.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		if !e.Record.State.Transient() {
			if ok, err := there(e.Record); ok || err != nil {
				return e.Record, err
			}
		}
		lease, err := s.store.Acquire(ctx, id, s.opts.LeaseTTL)
		if errors.Is(err, ErrLeaseHeld) {
			if err := w.wait(ctx); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		err = s.under(ctx, lease, func(ctx context.Context, h *held) error {
			e, err := s.store.Get(ctx, id)
			if err != nil {
				return err
			}
			if e.Record.State.Transient() {
				return h.settled(ctx, e.Record)
			}
			if ok, err := there(e.Record); ok || err != nil {
				return err
			}
			return do(ctx, h, e.Record)
		})
		if err != nil && !errors.Is(err, ErrLeaseLost) {
			return nil, err
		}
		// Round again: the record says what came of it.
	}
}

// settled waits until nobody works on the sandbox.
func (s *Service) settled(ctx context.Context, id session.ID) (*session.Record, error) {
	return s.drive(ctx, id, func(rec *session.Record) (bool, error) { return true, gone(rec) }, nil)
}

// gone is the error of a tombstone.
func gone(rec *session.Record) error {
	if rec.State == session.Deleted {
		return NotFound(rec.ID)
	}
	return nil
}

// under runs f while lease is kept up, and gives it back afterwards. f runs to
// its end even when the caller goes away: half a change of state is worse than
// one that nobody waited for. Its context ends with the Service, with the
// lease, or after WorkTimeout.
func (s *Service) under(ctx context.Context, lease Lease, f func(context.Context, *held) error) error {
	result := make(chan error, 1)
	task := func() {
		err := s.work(lease, f)
		result <- err
		if err != nil && ctx.Err() != nil { // nobody else will tell
			s.log.Warn("work on a sandbox failed after its caller left", zap.String("sandbox", string(lease.ID)), zap.Error(err))
		}
	}
	if !s.spawn(task) {
		return errClosed // the lease expires by itself
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Service) work(lease Lease, f func(context.Context, *held) error) error {
	// The lease outlasts the Service by what it takes to undo f and to release.
	held := &held{s: s, lease: lease}
	var lost context.CancelCauseFunc
	held.life, lost = context.WithCancelCause(context.WithoutCancel(s.ctx))
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		s.renew(held.life, lease, lost)
	}()
	ctx, stop := context.WithTimeout(held.life, s.opts.WorkTimeout)
	leave := context.AfterFunc(s.ctx, stop)
	err := f(ctx, held)
	leave()
	stop()
	if err != nil && errors.Is(context.Cause(held.life), ErrLeaseLost) {
		err = ErrLeaseLost
	} else if err != nil && s.ctx.Err() != nil {
		err = errClosed
	}
	lost(nil)
	<-renewed
	release, done := context.WithTimeout(context.WithoutCancel(s.ctx), 5*time.Second)
	defer done()
	if rerr := s.store.Release(release, lease); rerr != nil {
		s.log.Warn("lease not released, it will expire", zap.String("sandbox", string(lease.ID)), zap.Error(rerr))
	}
	return err
}

// renew keeps the lease up until ctx ends. When it cannot, it ends ctx a good
// while before the lease expires: nobody may still be at work then.
func (s *Service) renew(ctx context.Context, lease Lease, lost context.CancelCauseFunc) {
	ttl := s.opts.LeaseTTL
	tick := time.NewTicker(ttl / 4)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		asked := time.Now()
		rctx, cancel := context.WithDeadline(ctx, last.Add(ttl*3/4))
		err := s.store.Renew(rctx, lease, ttl)
		cancel()
		switch {
		case err == nil:
			last = asked
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrLeaseLost), time.Since(last) >= ttl/2: // the next tick is too late
			s.log.Warn("lease lost", zap.String("sandbox", string(lease.ID)), zap.Error(err))
			lost(ErrLeaseLost)
			return
		}
	}
}

// write changes the record under the lease.
func (h *held) write(ctx context.Context, change func(*session.Record)) (*session.Record, error) {
	return h.s.update(ctx, h.lease.ID, Write{Lease: &h.lease}, func(rec *session.Record) error { change(rec); return nil })
}

// finish changes the record for the last time and gives the lease back.
func (h *held) finish(ctx context.Context, change func(*session.Record)) (*session.Record, error) {
	return h.s.update(ctx, h.lease.ID, Write{Lease: &h.lease, Release: true}, func(rec *session.Record) error { change(rec); return nil })
}

// update changes the record of id by compare-and-set; change is called again
// when somebody else was faster. Without a lease it must leave State alone.
func (s *Service) update(ctx context.Context, id session.ID, w Write, change func(*session.Record) error) (*session.Record, error) {
	const tries = 50
	for try := range tries {
		e, err := s.store.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		before, err := e.Record.Encode()
		if err != nil {
			return nil, err
		}
		state := e.Record.State
		if err := change(e.Record); err != nil {
			return nil, err
		}
		if e.Record.State != state {
			e.Record.StateSince = s.clock.now()
		}
		// Most calls for a URL change nothing, and a write makes every edge
		// look the sandbox up again.
		if after, err := e.Record.Encode(); err == nil && w.Lease == nil && bytes.Equal(before, after) {
			return e.Record, nil
		}
		w.Entry, w.LookAt = e, s.lookAt(e.Record)
		err = s.store.Write(ctx, w)
		if err == nil {
			return e.Record, nil
		}
		if !errors.Is(err, ErrChanged) {
			return nil, err
		}
		if err := backOff(ctx, try); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("write record of %s: it changed %d times meanwhile", id, tries)
}

// backOff waits a random time, up to some milliseconds at first and 50 at last:
// many that write one record must not keep beating each other.
func backOff(ctx context.Context, try int) error {
	t := time.NewTimer(rand.N(min(time.Duration(try+1)*4*time.Millisecond, 50*time.Millisecond)))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// edit is update for those who change no state, of a sandbox that is there.
func (s *Service) edit(ctx context.Context, id session.ID, change func(*session.Record) error) (*session.Record, error) {
	return s.update(ctx, id, Write{}, func(rec *session.Record) error {
		if rec.State == session.Deleting || rec.State == session.Deleted {
			return NotFound(id)
		}
		return change(rec)
	})
}

// lookAt is when the janitor should look at the sandbox.
func (s *Service) lookAt(rec *session.Record) time.Time {
	switch {
	case rec.State.Transient():
		return s.clock.now().Add(s.opts.LeaseTTL)
	case rec.State == session.Running:
		if rec.IdleSeconds > 0 {
			return earlier(rec.EndAt, s.clock.now().Add(seconds(rec.IdleSeconds)))
		}
		return rec.EndAt
	case rec.State == session.Failed:
		return rec.EndAt
	}
	return time.Time{}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }
