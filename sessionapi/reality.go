package sessionapi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/session"
)

// reallyRuns checks whether the incarnation of a running sandbox still runs,
// and corrects the record of one whose processes ended by themselves, that was
// removed, or that is somewhere else now.
func (s *Service) reallyRuns(ctx context.Context, rec *session.Record) bool {
	if s.ours(rec) != nil {
		return true // another runtime's: not ours to judge
	}
	st, err := s.runtime.Inspect(ctx, rec.ID)
	if !dead(st, err, rec) {
		if err == nil && st.Handle != (Handle{Endpoint: rec.Endpoint, Ref: rec.Ref}) {
			s.moved(ctx, rec, st.Handle)
		}
		return true
	}
	now, err := s.drive(ctx, rec.ID, func(r *session.Record) (bool, error) {
		return r.State != session.Running || r.Incarnation != rec.Incarnation, nil
	}, func(ctx context.Context, h *held, r *session.Record) error {
		st, err := h.inspect(ctx, r)
		switch {
		case !dead(st, err, r):
			// It came up between the two looks; the next call finds it.
			return stateError(r, "the sandbox's processes are changing")
		case err != nil:
			return h.fail(ctx, r, reasonLost)
		case st.Removed:
			return h.fail(ctx, r, reasonRemoved)
		}
		s.log.Warn("sandbox ended by itself", zap.String("sandbox", string(r.ID)))
		if err := s.runtime.Stop(ctx, r.ID); err != nil {
			return runtimeUnavailable(err)
		}
		_, err = h.finish(ctx, func(r *session.Record) {
			pausedNow(r)
			r.Reason = reasonEnded
		})
		return err
	})
	return err != nil || now.State == session.Running && now.Incarnation == rec.Incarnation
}

const (
	// goingTime is how long a sandbox whose podd is gone may take to be gone
	// itself.
	goingTime = 3 * time.Second
	goingTick = 50 * time.Millisecond
)

// unreached looks, after a call to a podd failed, whether the sandbox is there
// still, and returns once its record says so or podd answers again: when podd
// is gone the rest of the sandbox may take a moment to follow. Only a failure to
// reach podd is such a failure.
func (s *Service) unreached(ctx context.Context, rec *session.Record, failure error) {
	if failure == nil || apierror.From(failure).Code != "podd_unreachable" || ctx.Err() != nil {
		return
	}
	silent := errors.Is(failure, errSilent) // it is there, and has no more time to be given
	_ = s.share(ctx, fmt.Sprintf("unreached %s %d %t", rec.ID, rec.Incarnation, silent), func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, goingTime)
		defer cancel()
		tick := time.NewTicker(goingTick)
		defer tick.Stop()
		for s.reallyRuns(ctx, rec) && !silent && !s.answers(ctx, rec) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil
			}
		}
		return nil
	})
}

// interrupted gives the error of a call to the podd of rec that failed. A call
// that was cut because the sandbox was paused, deleted or resumed meanwhile did
// not meet a broken sandbox, and its caller learns what became of it.
func (s *Service) interrupted(ctx context.Context, rec *session.Record, failure error) error {
	switch apierror.From(failure).Code {
	case "podd_unreachable", "stopping", "desktop_failed":
	default:
		return failure
	}
	s.unreached(ctx, rec, failure)
	e, err := s.store.Get(ctx, rec.ID)
	switch {
	case apierror.KindOf(err) == apierror.NotFound:
		return err
	case err != nil, e.Record.Reason != "": // nobody asked for what it has come to
		return failure
	case e.Record.State != session.Running:
		return stateError(e.Record, "the sandbox changed during the call")
	case e.Record.Incarnation != rec.Incarnation:
		return stateError(e.Record, "the sandbox was resumed during the call")
	}
	return failure
}

// answers reports whether podd is where the record has it.
func (s *Service) answers(ctx context.Context, rec *session.Record) bool {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	return s.podds.via(rec).lives(ctx)
}

// dead reports whether what the runtime says of a sandbox is that it does not
// run as in rec. A runtime that does not answer says nothing.
func dead(st Status, err error, rec *session.Record) bool {
	if err != nil {
		return apierror.KindOf(err) == apierror.NotFound
	}
	return !st.Running || st.Incarnation != rec.Incarnation
}

// moved notes where a running sandbox is now. A container's address can change
// when its engine restarts.
func (s *Service) moved(ctx context.Context, rec *session.Record, to Handle) {
	_, err := s.edit(ctx, rec.ID, func(r *session.Record) error {
		if r.State == session.Running && r.Incarnation == rec.Incarnation {
			r.Endpoint, r.Ref = to.Endpoint, to.Ref
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		s.log.Warn("the sandbox's new place is not noted", zap.String("sandbox", string(rec.ID)), zap.Error(err))
	}
}

// watchRuntime looks at sandboxes that the runtime says something about.
func (s *Service) watchRuntime(w Watcher) {
	slots := make(chan struct{}, sweepWorkers)
	w.Watch(s.ctx, func(id session.ID) {
		select { // holds up the runtime's news when there is too much of it
		case slots <- struct{}{}:
		case <-s.ctx.Done():
			return
		}
		s.spawn(func() {
			defer func() { <-slots }()
			err := s.noticed(id)
			if err != nil && s.ctx.Err() == nil {
				s.log.Warn("sandbox not looked at after its runtime's news", zap.String("sandbox", string(id)), zap.Error(err))
			}
		})
	})
}

func (s *Service) noticed(id session.ID) error {
	if id == "" {
		return s.auditRecords(s.ctx)
	}
	e, err := s.store.Get(s.ctx, id)
	if err != nil {
		if apierror.KindOf(err) == apierror.NotFound {
			return nil // another deployment's, or an orphan: the audit sees to it
		}
		return err
	}
	if e.Record.State == session.Running {
		s.reallyRuns(s.ctx, e.Record)
	}
	return nil
}
