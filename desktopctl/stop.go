package main

import (
	"context"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cubeplexai/cubepod/internal/apierror"
)

const (
	// stopLimit bounds a stop, the wait for a start included.
	stopLimit = 2 * time.Minute
	// endGrace is how long a daemon may take to end by itself.
	endGrace = 2 * time.Second
)

// Stop closes the browser, ends everything else and forgets it. Stopping what
// is stopped is fine.
func (s *Stack) Stop(ctx context.Context) (*Report, error) {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	s.found = s.dir.Find(components...)

	// Against the order of the start; what nobody needs ends at once.
	for _, step := range [][]string{{websockify, ttyd, vnc, chromium}, {wm}, {xvfb}} {
		g, gctx := errgroup.WithContext(ctx)
		for _, name := range step {
			g.Go(func() error { return s.end(gctx, name) })
		}
		if err := g.Wait(); err != nil {
			return nil, apierror.New(apierror.Internal, "stop_failed", "the desktop does not stop: %v", err)
		}
	}
	for _, path := range []string{s.cfg.vncSocket(), s.resolutionFile()} {
		if err := os.RemoveAll(path); err != nil {
			return nil, err
		}
	}
	return newReport(s.cfg.Resolution, nil), nil
}

// end ends one component and forgets it.
func (s *Stack) end(ctx context.Context, name string) error {
	p := s.found[name]
	switch {
	case p == nil:
	case name == chromium:
		if err := s.closeBrowser(ctx, p); err != nil {
			return err
		}
	default:
		if err := p.End(ctx, endGrace); err != nil {
			return err
		}
	}
	return s.dir.Forget(name)
}
