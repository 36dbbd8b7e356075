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

// The steps below are what is done under a lease. Each can be repeated, so that
// who takes a lease over goes on with the step that the record's state names.

const (
	// undoTimeout bounds the way back after something failed, when the work's
	// own context may be over.
	undoTimeout = 30 * time.Second
	// prepareTimeout bounds podd's preparation for a stop: closing the desktop,
	// to which podd gives 20 s, and flushing files.
	prepareTimeout = 25 * time.Second
	// minTombstone is how long a deleted sandbox is remembered at least.
	minTombstone = time.Minute
)

// settled is settle for a caller who wants something else of the sandbox. What
// went wrong with another's work is no matter to it if that came to an end.
func (h *held) settled(ctx context.Context, rec *session.Record) error {
	err := h.settle(ctx, rec)
	if err == nil {
		return nil
	}
	now, gerr := h.s.store.Get(ctx, rec.ID)
	if gerr != nil || now.Record.State.Transient() {
		return err
	}
	h.s.log.Warn("a sandbox's change of state was undone", zap.String("sandbox", string(rec.ID)),
		zap.String("state", string(now.Record.State)), zap.Error(err))
	return nil
}

// settle finishes or undoes what a dead holder of the lease left, going by what
// the runtime really has. As every step that comes to an end, it gives the
// lease back with its last write.
func (h *held) settle(ctx context.Context, rec *session.Record) error {
	h.s.log.Info("taking over a sandbox", zap.String("sandbox", string(rec.ID)), zap.String("state", string(rec.State)))
	switch rec.State {
	case session.Pausing:
		return h.stop(ctx, rec)
	case session.Resuming:
		return h.restart(ctx, rec)
	case session.Creating: // whoever asked for it never learnt its id
		return h.erase(ctx, rec)
	case session.Deleting:
		return h.erase(ctx, rec)
	}
	return nil
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
	now := s.clock.now()
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
	tmpl, ok := s.template(rec.Template)
	if !ok {
		return Handle{}, apierror.New(apierror.Conflict, "template_not_found", "there is no template %q any more", rec.Template)
	}
	spec := Spec{ID: rec.ID, Incarnation: rec.Incarnation, Template: tmpl}
	var err error
	if spec.Deployment, err = s.deploymentName(ctx); err != nil {
		return Handle{}, err
	}
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

// deploymentName asks the store once.
func (s *Service) deploymentName(ctx context.Context) (string, error) {
	s.mu.Lock()
	name := s.deployment
	s.mu.Unlock()
	if name != "" {
		return name, nil
	}
	name, err := s.store.Deployment(ctx)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deployment = name
	return name, nil
}

// restart takes a resuming sandbox to running, or back to paused.
func (h *held) restart(ctx context.Context, rec *session.Record) error {
	if _, err := h.inspect(ctx, rec); err != nil {
		if apierror.KindOf(err) != apierror.NotFound {
			return h.park(rec, err)
		}
		if err := h.fail(ctx, rec, reasonLost); err != nil {
			return err
		}
		return apierror.New(apierror.Conflict, "sandbox_state", "the sandbox cannot be resumed: %s", reasonLost)
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

func pausedNow(r *session.Record) { r.State, r.Endpoint, r.Reason = session.Paused, "", "" }

// stop takes a pausing sandbox to paused.
func (h *held) stop(ctx context.Context, rec *session.Record) error {
	s := h.s
	if err := s.ours(rec); err != nil {
		return err
	}
	st, err := h.inspect(ctx, rec)
	switch {
	case apierror.KindOf(err) == apierror.NotFound:
		return h.fail(ctx, rec, reasonLost)
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
			Gen: r.Gen, Incarnation: r.Incarnation, CreatedAt: r.CreatedAt, EndAt: s.clock.now(), TokensUntil: r.TokensUntil,
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
	return max(minTombstone, s.clock.until(rec.TokensUntil)+paneltoken.Leeway)
}

// Why sandboxes fail, or are paused although nobody asked for it.
const (
	reasonEnded   = "its processes ended by themselves; its files are there and it can be resumed"
	reasonLost    = "the runtime has lost the sandbox and its files"
	reasonRemoved = "what ran the sandbox was removed from outside; its files are there and it can be resumed"
)

// fail notes that the runtime does not have what should be there.
func (h *held) fail(ctx context.Context, rec *session.Record, reason string) error {
	_, err := h.finish(ctx, func(r *session.Record) {
		r.State, r.Endpoint, r.Reason = session.Failed, "", reason
	})
	if err == nil {
		h.s.log.Error("sandbox failed", zap.String("sandbox", string(rec.ID)), zap.String("reason", reason))
	}
	return err
}

func (h *held) inspect(ctx context.Context, rec *session.Record) (Status, error) {
	if err := h.s.ours(rec); err != nil {
		return Status{}, err
	}
	return h.s.runtime.Inspect(ctx, rec.ID)
}
