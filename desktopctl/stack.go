package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/cubeplexai/cubepod/desktopctl/chrome"
	"github.com/cubeplexai/cubepod/desktopctl/daemon"
	"github.com/cubeplexai/cubepod/internal/apierror"
)

// startLimit bounds a start, the wait for another one included.
const startLimit = 90 * time.Second

// Stack is the desktop of this guest. A value serves one call.
type Stack struct {
	cfg      Config
	dir      daemon.Dir
	devtools chrome.DevTools

	found map[string]*daemon.Process // what ran when the call began

	mu    sync.Mutex // guards the fields below
	alive map[string]*daemon.Process
	took  map[string]time.Duration
}

// NewStack returns the stack whose state is in cfg's run directory.
func NewStack(cfg Config) *Stack {
	return &Stack{
		cfg:      cfg,
		dir:      daemon.Dir(cfg.RunDir),
		devtools: chrome.DevTools(loopbackAddr(cdpPort).String()),
		alive:    make(map[string]*daemon.Process),
		took:     make(map[string]time.Duration),
	}
}

// StartRequest is what a start may change; zero fields change nothing.
type StartRequest struct {
	Resolution *Resolution
	URL        string
}

// Start makes everything run that does not, and applies req. It may be called
// at any time, by any number of callers: they take turns.
func (s *Stack) Start(ctx context.Context, req StartRequest) (*Report, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	began := time.Now()
	s.found = s.dir.Find(components...)

	// What needs no display starts beside it.
	var resolution Resolution
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		resolution, err = s.startDisplay(gctx, req)
		return err
	})
	g.Go(func() error { return s.ensure(gctx, s.component(websockify)) })
	g.Go(func() error { return s.ensureTerminal(gctx) })
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if err := s.awaitFront(ctx); err != nil {
		return nil, err
	}
	report := newReport(resolution, s.alivePids())
	report.Timings = newTimings(s.took, time.Since(began))
	return report, nil
}

// startDisplay makes the X server and its clients run.
//
// A cold start overlaps as much as it can: the browser is prepared while the X
// server starts, and run as soon as the server listens, which is long before
// it serves: connections wait for it. A window manager that comes late adopts
// the windows it finds, by the same rules.
func (s *Stack) startDisplay(ctx context.Context, req StartRequest) (Resolution, error) {
	want := s.resolution(ctx)
	if req.Resolution != nil {
		want = *req.Resolution
	}
	browser := s.newBrowser(want, req.URL)
	g, ctx := errgroup.WithContext(ctx)
	if s.found[chromium] == nil {
		g.Go(func() error { _, err := browser.prepare(); return err })
	}
	g.Go(func() error {
		listening := func() { g.Go(func() error { return browser.ensure(ctx) }) }
		if err := s.ensureServer(ctx, want, listening); err != nil {
			return err
		}
		g.Go(func() error { return s.ensure(ctx, s.component(wm)) })
		g.Go(func() error { return s.ensure(ctx, s.component(vnc)) })
		return nil
	})
	return want, g.Wait()
}

// awaitFront waits until port 9222 leads to the browser. Who holds it, podd or
// our viewer, is theirs to settle. Anybody else is in the way.
func (s *Stack) awaitFront(ctx context.Context) error {
	if s.frontLeads(ctx, patience) == nil {
		return nil
	}
	var viewer int
	if p := s.alive[websockify]; p != nil {
		viewer = p.Pid
	}
	if e, ok := errors.AsType[*daemon.ListenerError](daemon.Vacant(loopbackAddr(frontPort))); ok && e.Pid != 0 && e.Pid != viewer {
		return apierror.New(apierror.Conflict, "port_in_use", "DevTools clients need port %d, but %v", frontPort, e)
	}
	if err := s.frontLeads(ctx, startPatience); err != nil {
		return apierror.Wrap(err, apierror.Unavailable, "cdp_front", "port %d does not lead to the browser", frontPort)
	}
	return nil
}

// frontLeads returns nil when port 9222 leads to the browser that runs.
func (s *Stack) frontLeads(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	front := chrome.DevTools(loopbackAddr(frontPort).String())
	return daemon.Poll(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, answerPatience)
		defer cancel()
		want, err := s.devtools.Browser(ctx)
		if err != nil {
			return err
		}
		got, err := front.Browser(ctx)
		if err == nil && got != want {
			err = errors.New("it leads to another browser")
		}
		return err
	})
}

// lock takes the lock that start and stop share. It is given back by the
// kernel at the latest when this process ends, since no child has it.
func (s *Stack) lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(s.cfg.RunDir, "ctl.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	// Asked again and again, since a blocking flock cannot be given up.
	err = daemon.Poll(ctx, func(context.Context) error {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != nil && err != unix.EWOULDBLOCK && err != unix.EINTR {
			return daemon.Final(err)
		}
		return err
	})
	if err != nil {
		f.Close()
		return nil, apierror.Wrap(err, apierror.Timeout, "busy", "another start or stop does not finish")
	}
	return func() { f.Close() }, nil
}

func (s *Stack) setAlive(name string, p *daemon.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alive[name] = p
}

func (s *Stack) setTook(name string, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took[name] = d
}

func (s *Stack) alivePids() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	pids := make(map[string]int, len(s.alive))
	for name, p := range s.alive {
		pids[name] = p.Pid
	}
	return pids
}

func (s *Stack) logf(format string, args ...any) {
	fmt.Fprintf(s.cfg.Log, "cubepod-desktop-ctl: "+format+"\n", args...)
}

// lastLine is the last line of a log that says something, for a message.
func lastLine(path string) string {
	b, err := daemon.ReadFile(path)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
