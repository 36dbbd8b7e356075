package sessionapi

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/paneltoken"
	"github.com/cubeplexai/cubepod/internal/session"
)

// wakeKey tells wakes apart: those with the same one share the work.
type wakeKey struct {
	id      session.ID
	desktop bool
}

type wakeCall struct {
	done chan struct{} // closed after err is set
	err  error
}

// Wake resumes a sandbox for the bearer of a panel token, and starts the
// desktop again if it was wanted and the token is for one of its ports. It
// reports false when that still goes on after WakeWait; it then goes on without
// the caller.
func (s *Service) Wake(ctx context.Context, id session.ID, token string) (bool, error) {
	claims, err := s.verifier.Verify(token)
	if err != nil {
		return false, apierror.Wrap(err, apierror.Forbidden, "panel_token_invalid", "the panel token is not valid")
	}
	if claims.Sandbox != string(id) {
		return false, apierror.New(apierror.Forbidden, "panel_token_invalid", "the panel token is not for this sandbox")
	}
	e, err := s.store.Get(ctx, id)
	if err != nil {
		return false, err
	}
	if err := admit(e.Record, claims); err != nil {
		return false, err
	}
	key := wakeKey{id: id, desktop: e.Record.DesktopWanted && desktopPort(claims.Port) && !s.opts.NoDesktop}
	if e.Record.State == session.Running && !key.desktop {
		return true, nil
	}
	call := s.wake(key)
	if call == nil {
		return false, errClosed
	}
	t := time.NewTimer(s.opts.WakeWait)
	defer t.Stop()
	select {
	case <-call.done:
		return call.err == nil, call.err
	case <-t.C:
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// admit judges a verified token against the sandbox.
func admit(rec *session.Record, c paneltoken.Claims) error {
	switch rec.State {
	case session.Deleted, session.Deleting:
		return apierror.New(apierror.Gone, "sandbox_deleted", "the sandbox was deleted")
	}
	if c.Gen != 0 && c.Gen < rec.Gen {
		return apierror.New(apierror.Forbidden, "panel_token_invalid", "the panel token was revoked")
	}
	if _, ok := rec.Ports[c.Port]; !ok {
		return apierror.New(apierror.NotFound, "port_not_found", "port %d is not registered", c.Port)
	}
	return nil
}

// wake joins the wake that is under way or begins one. It belongs to the
// Service and not to a request, since a page that waits is reloaded meanwhile.
func (s *Service) wake(key wakeKey) *wakeCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	if call, ok := s.wakes[key]; ok {
		return call
	}
	if s.closed {
		return nil
	}
	call := &wakeCall{done: make(chan struct{})}
	s.wakes[key] = call
	s.tasks.Go(func() {
		call.err = s.wakeNow(key)
		if call.err != nil {
			s.log.Warn("sandbox not woken", zap.String("sandbox", string(key.id)), zap.Error(call.err))
		}
		s.mu.Lock()
		delete(s.wakes, key)
		s.mu.Unlock()
		close(call.done)
	})
	return call
}

func (s *Service) wakeNow(key wakeKey) error {
	rec, err := s.resume(s.ctx, key.id, 0, nil)
	if err != nil {
		return err
	}
	s.touch(s.ctx, rec)
	if key.desktop {
		return s.startDesktop(s.ctx, rec)
	}
	return nil
}
