package main

import (
	"context"
	"sync"
	"time"

	"github.com/cubeplexai/cubepod/desktopctl/daemon"
)

// statusPatience is how long status waits for a component's answer.
const statusPatience = 2 * time.Second

// Status reports what runs and answers. It takes no lock: during a start or a
// stop it tells how far that is.
func (s *Stack) Status(ctx context.Context) *Report {
	s.found = s.dir.Find(components...)
	checks := map[string]func(context.Context, *daemon.Process) error{
		xvfb:     s.server().ready,
		chromium: s.newBrowser(Resolution{}, "").answers,
	}
	var wg sync.WaitGroup
	for name, p := range s.found {
		check, ok := checks[name]
		if !ok {
			// The others do little enough to be well when they are alive;
			// start looks closer.
			s.setAlive(name, p)
			continue
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, statusPatience)
			defer cancel()
			if err := check(ctx, p); err != nil {
				s.logf("%s (pid %d) does not answer: %v", name, p.Pid, err)
				return
			}
			s.setAlive(name, p)
		})
	}
	wg.Wait()
	if len(s.found) > 0 && s.found[ttyd] == nil {
		if p := foreignTtyd(); p != nil {
			s.setAlive(ttyd, p)
		}
	}
	size, ok := s.screen(ctx)
	if !ok {
		size = s.remembered()
	}
	return newReport(size, s.alivePids())
}
