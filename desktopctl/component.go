package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/cubeplexai/cubepod/desktopctl/daemon"
	"github.com/cubeplexai/cubepod/internal/apierror"
)

// The components, by their key in "pids".
const (
	xvfb       = "xvfb"
	wm         = "wm"
	chromium   = "chromium"
	vnc        = "vnc"
	websockify = "websockify"
	ttyd       = "ttyd"
)

// components are all there are, in the order in which they need each other.
var components = []string{xvfb, wm, chromium, vnc, websockify, ttyd}

// A running component that takes longer than patience to answer is dead; one
// that was just started may take longer, since the machine may be busy and
// the disk cold.
const (
	patience      = 5 * time.Second
	startPatience = 45 * time.Second
	// answerPatience bounds one question, so that a lost one is asked again.
	answerPatience = 2 * time.Second
)

// component is one daemon of the desktop: how to run it and how to see that
// it works.
type component struct {
	name string
	log  string
	port int // where it is to listen, or 0
	// prepare removes what an earlier run left behind and says how to run
	// the daemon. No earlier run is alive.
	prepare func() (daemon.Spec, error)
	// ready returns nil when the daemon does its work.
	ready func(ctx context.Context, p *daemon.Process) error
}

// component describes the component of that name, but for X and the browser,
// which have more to them.
func (s *Stack) component(name string) component {
	switch name {
	case wm:
		return component{name: wm, log: "openbox", prepare: s.prepareWM, ready: s.wmReady}
	case vnc:
		return component{name: vnc, log: "vnc", prepare: s.prepareVNC, ready: s.vncReady}
	case websockify:
		return s.ownComponent(websockify, "viewer", viewerPort)
	case ttyd:
		return s.ownComponent(ttyd, "terminal", terminalPort)
	}
	panic("no component " + name)
}

// keep returns the running daemon of c when it answers. Otherwise nothing of
// it is left when keep returns nil.
func (s *Stack) keep(ctx context.Context, c component) (*daemon.Process, error) {
	p := s.found[c.name]
	if p == nil {
		return nil, nil
	}
	err := await(ctx, p, patience, c.ready)
	if err == nil {
		return p, nil
	}
	s.logf("%s (pid %d) does not answer, replacing it: %v", c.name, p.Pid, err)
	return nil, s.remove(ctx, c.name)
}

// remove kills what runs of a component.
func (s *Stack) remove(ctx context.Context, name string) error {
	if p := s.found[name]; p != nil {
		if err := p.Kill(ctx); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// ensure makes c run and answer.
func (s *Stack) ensure(ctx context.Context, c component) error {
	p, err := s.keep(ctx, c)
	if err != nil {
		return err
	}
	if p == nil {
		if p, err = s.launch(ctx, c); err != nil {
			return err
		}
	}
	s.setAlive(c.name, p)
	return nil
}

// launch starts c, of which nothing runs, and waits until it answers.
func (s *Stack) launch(ctx context.Context, c component) (*daemon.Process, error) {
	began := time.Now()
	p, err := s.spawn(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := await(ctx, p, startPatience, c.ready); err != nil {
		return nil, s.launchError(c, err)
	}
	s.launched(c, p, time.Since(began))
	return p, nil
}

// spawn starts c without waiting for it.
func (s *Stack) spawn(ctx context.Context, c component) (*daemon.Process, error) {
	if c.port != 0 {
		if err := portFree(ctx, c.port); err != nil {
			return nil, s.launchError(c, err)
		}
	}
	if err := checkRoom(s.cfg); err != nil {
		return nil, err
	}
	if err := s.dir.Reclaim(c.name); err != nil {
		s.logf("%s: %v", c.name, err)
	}
	spec, err := c.prepare()
	if err != nil {
		return nil, err
	}
	spec.Name, spec.Log = c.name, c.log
	spec.Env = append(spec.Env, s.cfg.environment()...)
	spec.Dir = guestHome
	if _, err := os.Stat(spec.Dir); err != nil {
		spec.Dir = "/"
	}
	return s.dir.Start(spec)
}

// launched notes that c was started and works.
func (s *Stack) launched(c component, p *daemon.Process, took time.Duration) {
	s.setTook(c.name, took)
	s.logf("%s: pid %d, ready after %v", c.name, p.Pid, took.Round(time.Millisecond))
}

// launchError says which component failed, how, and what it had to say.
func (s *Stack) launchError(c component, err error) error {
	if e, ok := errors.AsType[*apierror.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*daemon.ListenerError](err); ok {
		return apierror.New(apierror.Conflict, "port_in_use", "%s needs port %d, but %v", c.name, e.Addr.Port(), e)
	}
	logPath := s.dir.LogPath(c.log)
	switch {
	case errors.Is(err, daemon.ErrExited):
		return apierror.Wrap(err, apierror.Internal, c.name+"_exited", "%s ended at once; its log %s ends: %s", c.name, logPath, lastLine(logPath))
	case errors.Is(err, context.DeadlineExceeded):
		return apierror.Wrap(err, apierror.Timeout, c.name+"_timeout", "%s does not answer; see %s", c.name, logPath)
	}
	return apierror.Wrap(err, apierror.Internal, c.name+"_failed", "%s does not work; see %s", c.name, logPath)
}

// await waits for p to be ready, at most for limit.
func await(ctx context.Context, p *daemon.Process, limit time.Duration, ready func(context.Context, *daemon.Process) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return p.Await(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, answerPatience)
		defer cancel()
		return ready(ctx, p)
	})
}

// loopbackAddr is a port of the guest's loopback.
func loopbackAddr(port int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port))
}

// listens returns nil when p itself listens on the port.
func listens(p *daemon.Process, port int) error {
	ok, err := p.Listens(loopbackAddr(port))
	if err == nil && !ok {
		err = errors.New("does not listen yet")
	}
	return err
}

// portFree returns nil when nobody listens on the port. A process that was just
// killed holds its sockets a moment longer, with nobody to name as their owner:
// such a listener gets that moment.
func portFree(ctx context.Context, port int) error {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	var last error
	err := daemon.Poll(ctx, func(context.Context) error {
		last = daemon.Vacant(loopbackAddr(port))
		if foreign, ok := errors.AsType[*daemon.ListenerError](last); ok && foreign.Pid == 0 {
			return last
		}
		if last != nil {
			return daemon.Final(last)
		}
		return nil
	})
	if err != nil {
		return last
	}
	return nil
}

// plainClient knows no proxy: it talks to this machine only.
var plainClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// httpAnswers returns nil when a GET of url is answered 200.
func httpAnswers(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := plainClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20)); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return nil
}

// ownComponent is a sub-command of this program that serves a page.
func (s *Stack) ownComponent(name, command string, port int) component {
	c := component{name: name, log: name, port: port}
	c.prepare = func() (daemon.Spec, error) {
		self, err := os.Executable()
		if err != nil {
			return daemon.Spec{}, err
		}
		page := filepath.Join(s.cfg.pages(command), "index.html")
		if _, err := os.Stat(page); err != nil {
			return daemon.Spec{}, apierror.Wrap(err, apierror.Unsupported, "page_missing", "the page of %s is not installed: %s", name, page)
		}
		return daemon.Spec{Args: []string{self, command}, Env: s.cfg.export()}, nil
	}
	c.ready = func(ctx context.Context, p *daemon.Process) error {
		if err := httpAnswers(ctx, pageURL(port)); err != nil {
			return err
		}
		return listens(p, port)
	}
	return c
}

// pageURL is the address of the page at a port of the guest's.
func pageURL(port int) string { return "http://" + loopbackAddr(port).String() + "/" }
