package sessionapi

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/session"
)

const (
	sweepBatch   = 100 // sandboxes looked at in one sweep
	sweepWorkers = 8   // of them at once
	// retryAfter is when the janitor looks again at what it could not settle.
	retryAfter = 5 * time.Second
)

// sweepLoop is the janitor of this replica: it ends sandboxes whose time has
// come and settles what dead replicas left. One replica at a time sweeps, which
// saves work; sandboxes are still changed under their own leases only.
func (s *Service) sweepLoop() {
	me := rand.Text()
	tick := time.NewTicker(s.opts.SweepInterval)
	defer tick.Stop()
	ok := true
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		err := s.sweep(me)
		switch {
		case err == nil:
			ok = true
		case s.ctx.Err() != nil:
			return
		case ok: // once, not with every tick of an outage
			s.log.Warn("sweep failed", zap.Error(err))
			ok = false
		}
	}
}

func (s *Service) sweep(me string) error {
	leads, err := s.store.Lead(s.ctx, me, max(3*s.opts.SweepInterval, 5*time.Second))
	if err != nil || !leads {
		return err
	}
	ids, err := s.store.Due(s.ctx, time.Now(), sweepBatch)
	if err != nil {
		return err
	}
	slots := make(chan struct{}, sweepWorkers)
	var workers sync.WaitGroup
	defer workers.Wait()
	for _, id := range ids {
		slots <- struct{}{}
		workers.Go(func() {
			defer func() { <-slots }()
			if err := s.look(s.ctx, id); err != nil && s.ctx.Err() == nil {
				s.log.Warn("sandbox not settled, the janitor tries again", zap.String("sandbox", string(id)), zap.Error(err))
				s.postpone(id, time.Now().Add(retryAfter))
			}
		})
	}
	return nil
}

// look does for one sandbox what is due.
func (s *Service) look(ctx context.Context, id session.ID) error {
	e, err := s.store.Get(ctx, id)
	if apierror.KindOf(err) == apierror.NotFound {
		return s.store.Forget(ctx, id)
	}
	if err != nil {
		return err
	}
	rec := e.Record
	if rec.State == session.Deleted {
		return s.store.Forget(ctx, id)
	}
	if s.ours(rec) != nil {
		return s.store.Postpone(ctx, id, time.Now().Add(time.Minute)) // for a replica with that runtime
	}
	if rec.State.Transient() {
		if rec, err = s.takeOver(ctx, rec); err != nil {
			return err
		}
	}
	switch rec.State {
	case session.Running:
		return s.endOf(ctx, rec)
	case session.Failed:
		if ended(rec) {
			return s.Delete(ctx, id)
		}
	}
	return s.postpone(id, s.lookAt(rec))
}

// takeOver settles a passing state whose lease has expired. One that somebody
// works on is looked at again later.
func (s *Service) takeOver(ctx context.Context, rec *session.Record) (*session.Record, error) {
	lease, err := s.store.Acquire(ctx, rec.ID, s.opts.LeaseTTL)
	if err == ErrLeaseHeld {
		return rec, nil
	}
	if err != nil {
		return nil, err
	}
	err = s.under(ctx, lease, func(ctx context.Context, h *held) error {
		rec, err = h.settle(ctx)
		return err
	})
	return rec, err
}

// endOf pauses or deletes a running sandbox whose end has come, or that nobody
// used for its idle time.
func (s *Service) endOf(ctx context.Context, rec *session.Record) error {
	if ended(rec) {
		if rec.AutoPause {
			_, err := s.pauseIf(ctx, rec.ID, ended)
			return err
		}
		_, err := s.deleteIf(ctx, rec.ID, ended)
		return err
	}
	next := rec.EndAt
	if rec.IdleSeconds > 0 {
		used, err := s.store.Touched(ctx, rec.ID)
		if err != nil {
			return err
		}
		idleAt := later(used, rec.StartedAt).Add(seconds(rec.IdleSeconds))
		if !time.Now().Before(idleAt) {
			_, err := s.pauseIf(ctx, rec.ID, func(r *session.Record) bool { return r.Incarnation == rec.Incarnation })
			return err
		}
		next = earlier(next, idleAt)
	}
	return s.postpone(rec.ID, next)
}

// ended reports whether the sandbox's hard end has come. A sandbox that was
// resumed meanwhile has a new one.
func ended(rec *session.Record) bool {
	switch rec.State {
	case session.Running, session.Failed:
		return !time.Now().Before(rec.EndAt)
	}
	return false
}

// postpone moves the next look at id, but never past what a record that was
// written meanwhile asks for.
func (s *Service) postpone(id session.ID, next time.Time) error {
	if err := s.store.Postpone(s.ctx, id, next); err != nil {
		return err
	}
	e, err := s.store.Get(s.ctx, id)
	if apierror.KindOf(err) == apierror.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	return s.store.Hasten(s.ctx, id, s.lookAt(e.Record))
}
