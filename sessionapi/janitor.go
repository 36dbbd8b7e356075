package sessionapi

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
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
	var audited time.Time
	orphans := map[session.ID]bool{}
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		leads, err := s.sweep(me)
		if leads && err == nil {
			err = s.fill(s.ctx)
		}
		if leads && err == nil && time.Since(audited) >= s.opts.AuditInterval {
			err = s.audit(s.ctx, orphans)
			audited = time.Now()
		}
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

// sweep looks at the sandboxes that are due, if this replica is the one to. It
// reports whether it is.
func (s *Service) sweep(me string) (bool, error) {
	leads, err := s.store.Lead(s.ctx, me, max(3*s.opts.SweepInterval, 5*time.Second))
	if err != nil || !leads {
		return false, err
	}
	ids, err := s.store.Due(s.ctx, s.clock.now(), sweepBatch)
	if err != nil {
		return true, err
	}
	eachOf(ids, func(id session.ID) {
		err := s.look(s.ctx, id)
		if err == nil || s.ctx.Err() != nil {
			return
		}
		s.log.Warn("sandbox not settled, the janitor tries again", zap.String("sandbox", string(id)), zap.Error(err))
		if err := s.postpone(id, s.clock.now().Add(retryAfter)); err != nil {
			s.log.Debug("look not postponed, the next one is at once", zap.String("sandbox", string(id)), zap.Error(err))
		}
	})
	return true, nil
}

// eachOf calls f for each of ids, a few at once, and waits for all.
func eachOf(ids []session.ID, f func(session.ID)) {
	slots := make(chan struct{}, sweepWorkers)
	var workers sync.WaitGroup
	defer workers.Wait()
	for _, id := range ids {
		slots <- struct{}{}
		workers.Go(func() {
			defer func() { <-slots }()
			f(id)
		})
	}
}

// audit goes through all sandboxes, those that have a record and those that the
// runtime has. Suspects are the orphans that the last audit saw.
func (s *Service) audit(ctx context.Context, suspects map[session.ID]bool) error {
	if err := s.auditRecords(ctx); err != nil {
		return err
	}
	return s.auditRuntime(ctx, suspects)
}

// auditRuntime deletes what the runtime has of sandboxes without a record: a
// Redis that failed over may have forgotten the latest ones. A record comes
// before anything else of its sandbox and a tombstone after, so an orphan is one
// for good; two audits have to say so all the same, since files go with it.
func (s *Service) auditRuntime(ctx context.Context, suspects map[session.ID]bool) error {
	deployment, err := s.deploymentName(ctx)
	if err != nil {
		return err
	}
	seen := map[session.ID]bool{}
	for id, err := range s.runtime.List(ctx, deployment) {
		if err != nil {
			return err
		}
		if _, err := s.store.Get(ctx, id); apierror.KindOf(err) == apierror.NotFound {
			seen[id] = true
		} else if err != nil {
			return err
		}
	}
	for id := range seen {
		if !suspects[id] {
			continue
		}
		s.log.Warn("deleting a sandbox that has no record", zap.String("sandbox", string(id)))
		if err := s.runtime.Delete(ctx, id); err != nil {
			s.log.Warn("orphan not deleted, the next audit will", zap.String("sandbox", string(id)), zap.Error(err))
			continue
		}
		delete(seen, id)
	}
	clear(suspects)
	maps.Copy(suspects, seen)
	return nil
}

// auditRecords notices sandboxes that ended by themselves, and mends the lists.
func (s *Service) auditRecords(ctx context.Context) error {
	var at Position
	for {
		places, err := s.store.List(ctx, at, listBatch)
		if err != nil {
			return err
		}
		ids := make([]session.ID, len(places))
		for i, p := range places {
			ids[i] = p.ID
		}
		eachOf(ids, func(id session.ID) {
			if err := s.inspect(ctx, id); err != nil && ctx.Err() == nil {
				s.log.Warn("sandbox not audited", zap.String("sandbox", string(id)), zap.Error(err))
			}
		})
		if len(places) < listBatch {
			return ctx.Err()
		}
		at = places[len(places)-1]
	}
}

func (s *Service) inspect(ctx context.Context, id session.ID) error {
	e, err := s.store.Get(ctx, id)
	switch {
	case apierror.KindOf(err) == apierror.NotFound, err == nil && e.Record.State == session.Deleted:
		return s.store.Forget(ctx, id)
	case err != nil:
		return err
	}
	if e.Record.State == session.Running {
		s.reallyRuns(ctx, e.Record)
	}
	if e.Record.Standby != "" {
		if err := s.auditStandby(ctx, e.Record); err != nil {
			return err
		}
	}
	return s.store.Hasten(ctx, id, s.lookAt(e.Record))
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
		return s.store.Postpone(ctx, id, s.clock.now().Add(time.Minute)) // for a replica with that runtime
	}
	if rec.State.Transient() {
		if rec, err = s.takeOver(ctx, id); err != nil {
			return err
		}
	}
	if rec.State.Transient() { // somebody works on it, or died since: soon again
		return s.postpone(id, s.clock.now().Add(s.opts.LeaseTTL/5))
	}
	switch rec.State {
	case session.Running:
		return s.endOf(ctx, rec)
	case session.Failed:
		if s.ended(rec) {
			return s.Delete(ctx, id)
		}
	}
	return s.postpone(id, s.lookAt(rec))
}

// takeOver settles a passing state whose lease has expired, and gives the record
// as it is then. One that somebody works on is looked at again later.
func (s *Service) takeOver(ctx context.Context, id session.ID) (*session.Record, error) {
	lease, err := s.store.Acquire(ctx, id, s.opts.LeaseTTL)
	if err == nil {
		err = s.under(ctx, lease, func(ctx context.Context, h *held) error {
			e, err := s.store.Get(ctx, id)
			if err != nil || !e.Record.State.Transient() {
				return err
			}
			return h.settle(ctx, e.Record)
		})
	}
	if err != nil && !errors.Is(err, ErrLeaseHeld) {
		return nil, err
	}
	e, err := s.store.Get(ctx, id)
	return e.Record, err
}

// endOf pauses or deletes a running sandbox whose end has come, or that nobody
// used for its idle time.
func (s *Service) endOf(ctx context.Context, rec *session.Record) error {
	if s.ended(rec) {
		if rec.AutoPause {
			_, err := s.pauseIf(ctx, rec.ID, s.ended)
			return err
		}
		_, err := s.deleteIf(ctx, rec.ID, s.ended)
		return err
	}
	next := rec.EndAt
	if rec.IdleSeconds > 0 {
		idleAt, err := s.idleAt(ctx, rec)
		if err != nil {
			return err
		}
		if !s.clock.now().Before(idleAt) {
			_, err := s.pauseIf(ctx, rec.ID, func(r *session.Record) bool {
				// It may have been used, or resumed, since.
				at, err := s.idleAt(ctx, r)
				return err == nil && !s.clock.now().Before(at)
			})
			return err
		}
		next = earlier(next, idleAt)
	}
	return s.postpone(rec.ID, next)
}

// idleAt is when nobody will have used the sandbox for its idle time.
func (s *Service) idleAt(ctx context.Context, rec *session.Record) (time.Time, error) {
	used, err := s.store.Touched(ctx, rec.ID)
	return later(used, rec.StartedAt).Add(seconds(rec.IdleSeconds)), err
}

// ended reports whether the sandbox's hard end has come. A sandbox that was
// resumed meanwhile has a new one.
func (s *Service) ended(rec *session.Record) bool {
	switch rec.State {
	case session.Running, session.Failed:
		return !s.clock.now().Before(rec.EndAt)
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
