package sessionapi

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/paneltoken"
	"github.com/cubeplexai/cubepod/internal/session"
)

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
	desktop := e.Record.DesktopWanted && desktopPort(claims.Port) && !s.opts.NoDesktop
	if e.Record.State == session.Running && !desktop {
		return true, nil
	}
	wait, cancel := context.WithTimeoutCause(ctx, s.opts.WakeWait, errInProgress)
	defer cancel()
	err = s.share(wait, fmt.Sprintf("wake %s %t", id, desktop), func(ctx context.Context) error {
		err := s.wake(ctx, id, desktop)
		if err != nil {
			s.log.Warn("sandbox not woken", zap.String("sandbox", string(id)), zap.Error(err))
		}
		return err
	})
	if errors.Is(err, errInProgress) {
		return false, nil
	}
	return err == nil, err
}

var errInProgress = errors.New("the wake goes on")

func (s *Service) wake(ctx context.Context, id session.ID, desktop bool) error {
	rec, err := s.resume(ctx, id, resumption{})
	if err != nil {
		return err
	}
	s.touch(ctx, rec)
	if desktop {
		return s.startDesktop(ctx, rec)
	}
	return nil
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
