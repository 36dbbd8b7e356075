package sessionapi

import (
	"context"
	"fmt"
	"maps"
	"time"

	"go.uber.org/zap"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/session"
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
	tmpl, ok := s.template(req.Template)
	if !ok {
		return nil, apierror.New(apierror.NotFound, "template_not_found", "there is no template %q", req.Template)
	}
	if tmpl.Warm > 0 {
		rec, err := s.claim(ctx, caller, tmpl, req)
		if rec != nil || err != nil {
			return rec, err
		}
	}
	rec := s.newRecord(tmpl, req)
	rec.Owner = caller.Name
	return s.createAs(ctx, rec)
}

func (s *Service) newRecord(tmpl Template, req CreateRequest) *session.Record {
	now := s.clock.now()
	return &session.Record{
		ID:             session.NewID(),
		Template:       req.Template,
		Runtime:        s.runtime.Name(),
		State:          session.Creating,
		StateSince:     now,
		Gen:            1,
		Incarnation:    1,
		MasterKey:      s.keys.Master.Signing().ID,
		TunnelKey:      s.keys.Tunnel.Signing().ID,
		Metadata:       req.Metadata,
		Envs:           withDefaults(tmpl.Env, req.Envs),
		CreatedAt:      now,
		StartedAt:      now,
		EndAt:          now.Add(req.Timeout),
		AutoPause:      req.AutoPause,
		TimeoutSeconds: int64(req.Timeout / time.Second),
		IdleSeconds:    int64(req.Idle / time.Second),
	}
}

// createAs starts the sandbox of a new record.
func (s *Service) createAs(ctx context.Context, rec *session.Record) (*session.Record, error) {
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

// withDefaults gives the variables of both, own ones winning.
func withDefaults(defaults, own map[string]string) map[string]string {
	if len(defaults) == 0 {
		return own
	}
	out := maps.Clone(defaults)
	maps.Copy(out, own)
	return out
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
	}, func(ctx context.Context, h *held, _ *session.Record) error {
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
	return s.resume(ctx, rec.ID, resumption{timeout: timeout, autoPause: autoPause, failed: true})
}

// Connect resumes the sandbox when it is paused, and makes sure that it does
// not end before timeout. It reports whether it had to resume.
func (s *Service) Connect(ctx context.Context, rec *session.Record, timeout time.Duration) (*session.Record, bool, error) {
	if rec.State != session.Running || !s.reallyRuns(ctx, rec) {
		rec, err := s.resume(ctx, rec.ID, resumption{timeout: timeout, failed: true})
		return rec, true, err
	}
	if timeout == 0 {
		return rec, false, nil
	}
	rec, err := s.edit(ctx, rec.ID, func(r *session.Record) error {
		r.EndAt = later(r.EndAt, s.clock.now().Add(timeout))
		return nil
	})
	return rec, false, err
}

// resumption says how a sandbox is resumed.
type resumption struct {
	timeout   time.Duration // the last one again when zero
	autoPause *bool         // as before when nil
	// failed resumes a failed sandbox too, of which more than its processes may
	// be gone. Only those who ask for the resume itself want that.
	failed bool
}

func (s *Service) resume(ctx context.Context, id session.ID, how resumption) (*session.Record, error) {
	return s.drive(ctx, id, func(rec *session.Record) (bool, error) {
		switch rec.State {
		case session.Running:
			return true, nil
		case session.Paused:
			return false, nil
		case session.Failed:
			if how.failed {
				return false, nil
			}
		}
		return false, stateError(rec, "the sandbox cannot be resumed")
	}, func(ctx context.Context, h *held, rec *session.Record) error {
		// A runtime that does not answer now could not undo it either.
		if _, err := h.inspect(ctx, rec); err != nil && apierror.KindOf(err) != apierror.NotFound {
			return runtimeUnavailable(err)
		}
		rec, err := h.write(ctx, func(r *session.Record) {
			r.State = session.Resuming
			r.Incarnation++
			r.MasterKey, r.TunnelKey = s.keys.Master.Signing().ID, s.keys.Tunnel.Signing().ID
			if how.timeout > 0 {
				r.TimeoutSeconds = int64(how.timeout / time.Second)
			}
			if how.autoPause != nil {
				r.AutoPause = *how.autoPause
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
