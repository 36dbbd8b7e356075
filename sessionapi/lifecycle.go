package sessionapi

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/paneltoken"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/internal/session"
)

const (
	// undoTimeout bounds the way back after something failed, when the work's
	// own context may be over.
	undoTimeout = 30 * time.Second
	// prepareTimeout bounds podd's preparation for a stop: closing the desktop
	// and flushing files.
	prepareTimeout = 20 * time.Second
	// minTombstone is how long a deleted sandbox is remembered at least.
	minTombstone = time.Minute
)

// CreateRequest says what sandbox is wanted. See [Service.Create].
type CreateRequest struct {
	Template string
	Timeout  time.Duration
	Idle     time.Duration
	Metadata map[string]string
	Envs     map[string]string
	// AutoPause pauses the sandbox at its end instead of deleting it.
	AutoPause bool
}

// Create makes a sandbox for caller and returns once commands can be run in
// it. When ctx ends before, the sandbox is undone: nobody knows its id.
func (s *Service) Create(ctx context.Context, caller Caller, req CreateRequest) (*session.Record, error) {
	if _, ok := s.opts.Templates[req.Template]; !ok {
		return nil, apierror.New(apierror.NotFound, "template_not_found", "there is no template %q", req.Template)
	}
	now := time.Now().UTC()
	rec := &session.Record{
		ID:             session.NewID(),
		Owner:          caller.Name,
		Template:       req.Template,
		Runtime:        s.runtime.Name(),
		State:          session.Creating,
		Gen:            1,
		Incarnation:    1,
		MasterKey:      s.keys.Master.Signing().ID,
		TunnelKey:      s.keys.Tunnel.Signing().ID,
		Metadata:       req.Metadata,
		Envs:           req.Envs,
		CreatedAt:      now,
		StartedAt:      now,
		EndAt:          now.Add(req.Timeout),
		AutoPause:      req.AutoPause,
		TimeoutSeconds: int64(req.Timeout / time.Second),
		IdleSeconds:    int64(req.Idle / time.Second),
	}
	lease, err := s.store.Create(ctx, rec, s.lookAt(rec), s.opts.LeaseTTL)
	if err != nil {
		return nil, err
	}
	var out *session.Record
	err = s.under(context.WithoutCancel(ctx), lease, func(work context.Context, h *held) error {
		start, cancel := context.WithCancelCause(work)
		defer cancel(nil)
		defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
		got, err := h.start(start, rec)
		if err == nil {
			out = got
			return nil
		}
		undo, done := h.undoing()
		defer done()
		if derr := h.erase(undo, rec); derr != nil {
			s.log.Warn("sandbox not undone, the janitor will", zap.String("sandbox", string(rec.ID)), zap.Error(derr))
		}
		return err
	})
	return out, err
}

// Pause ends the sandbox's processes and keeps its files.
func (s *Service) Pause(ctx context.Context, rec *session.Record) error {
	if rec.State == session.Paused {
		return stateError(rec, "the sandbox is paused already")
	}
	_, err := s.pauseIf(ctx, rec.ID, nil)
	return err
}

// pauseIf pauses the sandbox unless it is paused, or cond, asked under the
// lease, says no.
func (s *Service) pauseIf(ctx context.Context, id session.ID, cond func(*session.Record) bool) (*session.Record, error) {
	return s.drive(ctx, id, func(rec *session.Record) (bool, error) {
		switch rec.State {
		case session.Paused:
			return true, nil
		case session.Running:
			return cond != nil && !cond(rec), nil
		}
		return false, stateError(rec, "the sandbox cannot be paused")
	}, func(ctx context.Context, h *held, rec *session.Record) error {
		rec, err := h.write(ctx, func(r *session.Record) { r.State = session.Pausing })
		if err != nil {
			return err
		}
		return h.stop(ctx, rec)
	})
}

// Resume starts a paused sandbox again, to end after timeout, or after as long
// as it was given before when timeout is zero.
func (s *Service) Resume(ctx context.Context, rec *session.Record, timeout time.Duration, autoPause *bool) (*session.Record, error) {
	if rec.State == session.Running && s.reallyRuns(ctx, rec) {
		return nil, stateError(rec, "the sandbox is running already")
	}
	return s.resume(ctx, rec.ID, timeout, autoPause)
}

// Connect resumes the sandbox when it is paused, and makes sure that it does
// not end before timeout. It reports whether it had to resume.
func (s *Service) Connect(ctx context.Context, rec *session.Record, timeout time.Duration) (*session.Record, bool, error) {
	if rec.State != session.Running || !s.reallyRuns(ctx, rec) {
		rec, err := s.resume(ctx, rec.ID, timeout, nil)
		return rec, true, err
	}
	if timeout == 0 {
		return rec, false, nil
	}
	rec, err := s.edit(ctx, rec.ID, func(r *session.Record) error {
		r.EndAt = later(r.EndAt, time.Now().UTC().Add(timeout))
		return nil
	})
	return rec, false, err
}

func (s *Service) resume(ctx context.Context, id session.ID, timeout time.Duration, autoPause *bool) (*session.Record, error) {
	return s.drive(ctx, id, func(rec *session.Record) (bool, error) {
		switch rec.State {
		case session.Running:
			return true, nil
		case session.Paused:
			return false, nil
		}
		return false, stateError(rec, "the sandbox cannot be resumed")
	}, func(ctx context.Context, h *held, _ *session.Record) error {
		rec, err := h.write(ctx, func(r *session.Record) {
			r.State = session.Resuming
			r.Incarnation++
			r.MasterKey, r.TunnelKey = s.keys.Master.Signing().ID, s.keys.Tunnel.Signing().ID
			if timeout > 0 {
				r.TimeoutSeconds = int64(timeout / time.Second)
			}
			if autoPause != nil {
				r.AutoPause = *autoPause
			}
		})
		if err != nil {
			return err
		}
		return h.restart(ctx, rec)
	})
}

// Delete removes everything of the sandbox but a tombstone.
func (s *Service) Delete(ctx context.Context, id session.ID) error {
	_, err := s.deleteIf(ctx, id, nil)
	return err
}

// deleteIf deletes the sandbox unless it is deleted, or cond, asked under the
// lease, says no.
func (s *Service) deleteIf(ctx context.Context, id session.ID, cond func(*session.Record) bool) (*session.Record, error) {
	return s.drive(ctx, id, func(rec *session.Record) (bool, error) {
		return rec.State == session.Deleted || cond != nil && !cond(rec), nil
	}, func(ctx context.Context, h *held, rec *session.Record) error {
		return h.erase(ctx, rec)
	})
}

// settle finishes or undoes what a dead holder of the lease left, going by what
// the runtime really has, and gives the record.
func (h *held) settle(ctx context.Context) (*session.Record, error) {
	e, err := h.s.store.Get(ctx, h.lease.ID)
	if err != nil {
		return nil, err
	}
	rec := e.Record
	if !rec.State.Transient() {
		return rec, nil
	}
	h.s.log.Info("taking over a sandbox", zap.String("sandbox", string(rec.ID)), zap.String("state", string(rec.State)))
	switch rec.State {
	case session.Creating: // whoever asked for it never learnt its id
		err = h.erase(ctx, rec)
	case session.Pausing:
		err = h.stop(ctx, rec)
	case session.Resuming:
		err = h.restart(ctx, rec)
	case session.Deleting:
		err = h.erase(ctx, rec)
	}
	if err != nil {
		return nil, err
	}
	e, err = h.s.store.Get(ctx, h.lease.ID)
	return e.Record, err
}

// start takes a creating or resuming sandbox to running.
func (h *held) start(ctx context.Context, rec *session.Record) (*session.Record, error) {
	s := h.s
	began := time.Now()
	handle, err := s.startRuntime(ctx, rec)
	s.metrics.started(rec.Runtime, err, time.Since(began))
	if err != nil {
		return nil, err
	}
	rec.Endpoint = handle.Endpoint
	if len(rec.Envs) > 0 {
		podd, err := s.podd(rec)
		if err == nil {
			err = podd.PutEnv(ctx, rec.Envs)
		}
		if err != nil {
			return nil, fmt.Errorf("write environment: %w", err)
		}
	}
	now := time.Now().UTC()
	out, err := h.finish(ctx, func(r *session.Record) {
		r.State, r.Reason = session.Running, ""
		r.Endpoint, r.Ref = handle.Endpoint, handle.Ref
		r.StartedAt, r.EndAt = now, now.Add(seconds(r.TimeoutSeconds))
	})
	if err == nil {
		s.log.Info("sandbox started", zap.String("sandbox", string(out.ID)), zap.String("runtime", out.Runtime),
			zap.Int64("incarnation", out.Incarnation), zap.Duration("duration", time.Since(began)))
	}
	return out, err
}

func (s *Service) startRuntime(ctx context.Context, rec *session.Record) (Handle, error) {
	if err := s.ours(rec); err != nil {
		return Handle{}, err
	}
	tmpl, ok := s.opts.Templates[rec.Template]
	if !ok {
		return Handle{}, apierror.New(apierror.Conflict, "template_not_found", "there is no template %q any more", rec.Template)
	}
	spec := Spec{ID: rec.ID, Incarnation: rec.Incarnation, Template: tmpl}
	var err error
	if spec.FullToken, err = s.token(rec, poddapi.Full); err != nil {
		return Handle{}, err
	}
	if spec.TunnelToken, err = s.token(rec, poddapi.Tunnel); err != nil {
		return Handle{}, err
	}
	h, err := s.runtime.Start(ctx, spec)
	if err != nil {
		return Handle{}, runtimeUnavailable(fmt.Errorf("start sandbox: %w", err))
	}
	return h, nil
}

// restart takes a resuming sandbox to running, or back to paused.
func (h *held) restart(ctx context.Context, rec *session.Record) error {
	if _, err := h.inspect(ctx, rec); err != nil {
		if apierror.KindOf(err) != apierror.NotFound {
			return h.park(rec, err)
		}
		return h.fail(ctx, rec)
	}
	if _, err := h.start(ctx, rec); err != nil {
		return h.park(rec, err)
	}
	return nil
}

// park takes a sandbox that did not start back to paused, and gives the cause.
func (h *held) park(rec *session.Record, cause error) error {
	undo, done := h.undoing()
	defer done()
	if undo.Err() != nil {
		return cause // whoever has the lease now may just be starting it
	}
	if err := h.s.runtime.Stop(undo, rec.ID); err != nil {
		h.s.log.Warn("sandbox not stopped, the janitor will", zap.String("sandbox", string(rec.ID)), zap.Error(err))
		return cause
	}
	if _, err := h.finish(undo, pausedNow); err != nil {
		h.s.log.Warn("record not written, the janitor will", zap.String("sandbox", string(rec.ID)), zap.Error(err))
	}
	return cause
}

func pausedNow(r *session.Record) { r.State, r.Endpoint = session.Paused, "" }

// stop takes a pausing sandbox to paused.
func (h *held) stop(ctx context.Context, rec *session.Record) error {
	s := h.s
	if err := s.ours(rec); err != nil {
		return err
	}
	st, err := h.inspect(ctx, rec)
	switch {
	case apierror.KindOf(err) == apierror.NotFound:
		return h.fail(ctx, rec)
	case err != nil:
		return runtimeUnavailable(err)
	}
	if st.Running {
		s.prepareStop(ctx, rec)
	}
	if err := s.runtime.Stop(ctx, rec.ID); err != nil {
		return runtimeUnavailable(fmt.Errorf("stop sandbox: %w", err))
	}
	_, err = h.finish(ctx, pausedNow)
	if err == nil {
		s.log.Info("sandbox paused", zap.String("sandbox", string(rec.ID)))
	}
	return err
}

// prepareStop lets podd close the desktop and flush. A podd that cannot is no
// reason to let the sandbox run on.
func (s *Service) prepareStop(ctx context.Context, rec *session.Record) {
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	podd, err := s.podd(rec)
	if err == nil {
		_, err = podd.PrepareStop(ctx)
	}
	if err != nil {
		s.log.Warn("podd did not prepare for the stop", zap.String("sandbox", string(rec.ID)), zap.Error(err))
	}
}

// erase takes a sandbox in any state to deleted.
func (h *held) erase(ctx context.Context, rec *session.Record) error {
	s := h.s
	if err := s.ours(rec); err != nil {
		return err
	}
	// From here on nobody mints tokens any more: see edit.
	rec, err := h.write(ctx, func(r *session.Record) { r.State = session.Deleting })
	if err != nil {
		return err
	}
	if err := s.runtime.Delete(ctx, rec.ID); err != nil {
		return runtimeUnavailable(fmt.Errorf("delete sandbox: %w", err))
	}
	_, err = s.update(ctx, rec.ID, Write{Lease: &h.lease, Release: true, Expire: s.tombstoneLife(rec)}, func(r *session.Record) error {
		*r = session.Record{
			ID: r.ID, Owner: r.Owner, Template: r.Template, Runtime: r.Runtime, State: session.Deleted,
			Gen: r.Gen, Incarnation: r.Incarnation, CreatedAt: r.CreatedAt, EndAt: time.Now().UTC(), TokensUntil: r.TokensUntil,
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.log.Info("sandbox deleted", zap.String("sandbox", string(rec.ID)))
	if err := s.store.Forget(ctx, rec.ID); err != nil { // the janitor will
		s.log.Warn("deleted sandbox is still on the lists", zap.String("sandbox", string(rec.ID)), zap.Error(err))
	}
	return nil
}

// tombstoneLife is how long clients with a panel token can still come.
func (s *Service) tombstoneLife(rec *session.Record) time.Duration {
	return max(minTombstone, time.Until(rec.TokensUntil)+paneltoken.Leeway)
}

// fail notes that the runtime has nothing of a sandbox that should be there.
func (h *held) fail(ctx context.Context, rec *session.Record) error {
	_, err := h.finish(ctx, func(r *session.Record) {
		r.State, r.Endpoint = session.Failed, ""
		r.Reason = "the runtime has lost the sandbox and its files"
	})
	if err == nil {
		h.s.log.Error("sandbox lost", zap.String("sandbox", string(rec.ID)))
	}
	return err
}

func (h *held) inspect(ctx context.Context, rec *session.Record) (Status, error) {
	if err := h.s.ours(rec); err != nil {
		return Status{}, err
	}
	return h.s.runtime.Inspect(ctx, rec.ID)
}

// reallyRuns checks whether the incarnation of a running sandbox still runs, and
// corrects the record of one whose processes ended by themselves.
func (s *Service) reallyRuns(ctx context.Context, rec *session.Record) bool {
	dead := func(st Status, err error, r *session.Record) bool {
		return apierror.KindOf(err) == apierror.NotFound || err == nil && (!st.Running || st.Incarnation != r.Incarnation)
	}
	if s.ours(rec) != nil {
		return true // another runtime's: not ours to judge
	}
	if st, err := s.runtime.Inspect(ctx, rec.ID); !dead(st, err, rec) {
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
			return h.fail(ctx, r)
		}
		s.log.Warn("sandbox ended by itself", zap.String("sandbox", string(r.ID)))
		if err := s.runtime.Stop(ctx, r.ID); err != nil {
			return runtimeUnavailable(err)
		}
		_, err = h.finish(ctx, pausedNow)
		return err
	})
	return err != nil || now.State == session.Running && now.Incarnation == rec.Incarnation
}

// ours refuses a sandbox that another runtime holds.
func (s *Service) ours(rec *session.Record) error {
	if rec.Runtime == s.runtime.Name() {
		return nil
	}
	return &apierror.Error{
		Kind: apierror.Unavailable, Code: "runtime_unavailable", RetryAfter: 5 * time.Second,
		Detail: fmt.Sprintf("the sandbox lives in the runtime %q, this server has %q", rec.Runtime, s.runtime.Name()),
	}
}

func stateError(rec *session.Record, why string) error {
	if err := gone(rec); err != nil {
		return err
	}
	detail := fmt.Sprintf("%s: it is %s", why, rec.State)
	if rec.Reason != "" {
		detail += " (" + rec.Reason + ")"
	}
	return &apierror.Error{Kind: apierror.Conflict, Code: "sandbox_state", Detail: detail}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
