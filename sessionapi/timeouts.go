package sessionapi

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/cubeplexai/cubepod/internal/session"
)

// SetTimeout moves the running sandbox's end to timeout from now.
func (s *Service) SetTimeout(ctx context.Context, rec *session.Record, timeout time.Duration) error {
	return s.moveEnd(ctx, rec, func(r *session.Record) {
		r.EndAt = s.clock.now().Add(timeout)
		r.TimeoutSeconds = int64(timeout / time.Second)
	})
}

// Refresh makes sure that the running sandbox does not end before d from now;
// d is its own timeout when zero.
func (s *Service) Refresh(ctx context.Context, rec *session.Record, d time.Duration) error {
	return s.moveEnd(ctx, rec, func(r *session.Record) {
		if d == 0 {
			d = seconds(r.TimeoutSeconds)
		}
		r.EndAt = later(r.EndAt, s.clock.now().Add(d))
	})
}

func (s *Service) moveEnd(ctx context.Context, rec *session.Record, move func(*session.Record)) error {
	rec, err := s.running(ctx, rec)
	if err != nil {
		return err
	}
	_, err = s.edit(ctx, rec.ID, func(r *session.Record) error {
		if r.State != session.Running {
			return stateError(r, "the sandbox does not run")
		}
		move(r)
		return nil
	})
	return err
}

// touch notes that the sandbox was used.
func (s *Service) touch(ctx context.Context, rec *session.Record) {
	if rec.IdleSeconds == 0 {
		return
	}
	if err := s.store.Touch(ctx, rec.ID, s.clock.now(), 2*seconds(rec.IdleSeconds)+time.Minute); err != nil && ctx.Err() == nil {
		s.log.Warn("activity not noted", zap.String("sandbox", string(rec.ID)), zap.Error(err))
	}
}

// InUse notes that the sandbox is used until the function it gives is called:
// a call that runs for long is use all the time. That function waits until
// nothing is noted any more.
func (s *Service) InUse(ctx context.Context, rec *session.Record) (stop func()) {
	if rec.IdleSeconds == 0 {
		return func() {}
	}
	noting := context.WithoutCancel(ctx) // use that ended with its client was use
	ctx, cancel := context.WithCancel(noting)
	done := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(done)
		tick := time.NewTicker(max(seconds(rec.IdleSeconds)/3, time.Second))
		defer tick.Stop()
		for {
			s.touch(noting, rec)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
		if time.Since(began) >= time.Second { // a short call's beginning is its end
			s.touch(noting, rec)
		}
	}
}
