package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cubeplexai/cubepod/desktopctl/daemon"
	"github.com/cubeplexai/cubepod/desktopctl/x11"
	"github.com/cubeplexai/cubepod/internal/apierror"
)

// server is the X server. It starts with the largest screen and is made
// smaller before its first client comes: RANDR cannot grow a screen beyond
// its first size, and a new resolution must not cost the open pages. The
// price is 30 MB of framebuffer.
//
// There is no authorization: the server listens on a Unix socket only and
// then admits local clients alone, and a guest has no other users. A cookie
// would break every tool that is told no more than DISPLAY.
func (s *Stack) server() component {
	return component{name: xvfb, log: "xvfb", prepare: s.prepareXvfb, ready: s.serverReady}
}

func (s *Stack) prepareXvfb() (daemon.Spec, error) {
	path, err := findProgram("Xvfb")
	if err != nil {
		return daemon.Spec{}, err
	}
	if err := clearDisplay(); err != nil {
		return daemon.Spec{}, err
	}
	return daemon.Spec{Args: []string{
		path, display,
		"-screen", "0", maxResolution.String(),
		"-nolisten", "tcp",
		"-noreset", // lives on when its last client leaves
		"-dpi", "96",
		"-s", "0", // no screen saver
		"+extension", "RANDR",
		"-extension", "GLX", // nobody's: the browser renders by itself
	}}, nil
}

// serverReady is ready when the server answers, and is the one we started.
func (s *Stack) serverReady(ctx context.Context, p *daemon.Process) error {
	conn, err := x11.Dial(ctx, display)
	if err != nil {
		return err
	}
	defer conn.Close()
	if pid := conn.ServerPid(); pid != 0 && pid != p.Pid {
		return daemon.Final(apierror.New(apierror.Conflict, "display_in_use", "display %s belongs to another X server, pid %d", display, pid))
	}
	return nil
}

// serverListens is ready when the server takes connections, though it may not
// serve them yet.
func (s *Stack) serverListens(ctx context.Context, _ *daemon.Process) error {
	conn, err := dialUnix(ctx, x11.SocketPath(display))
	if err != nil {
		return err
	}
	return conn.Close()
}

// ensureServer makes the X server run with a screen of that size. It calls
// listening when clients may be started.
func (s *Stack) ensureServer(ctx context.Context, size Resolution, listening func()) error {
	c := s.server()
	p, err := s.keep(ctx, c)
	if err != nil {
		return err
	}
	if p != nil {
		listening()
		s.setAlive(xvfb, p)
		return s.resize(ctx, size)
	}
	// The display's clients die with it, though not at once.
	for _, name := range []string{wm, chromium, vnc} {
		if err := s.remove(ctx, name); err != nil {
			return err
		}
		s.found[name] = nil
	}
	began := time.Now()
	if p, err = s.spawn(ctx, c); err != nil {
		return err
	}
	if err := await(ctx, p, startPatience, s.serverListens); err != nil {
		return s.launchError(c, err)
	}
	listening()
	if err := await(ctx, p, startPatience, c.ready); err != nil {
		return s.launchError(c, err)
	}
	s.launched(c, p, time.Since(began))
	s.setAlive(xvfb, p)
	return s.resize(ctx, size)
}

// clearDisplay removes the lock and the socket of a server that is gone. Only
// the display tells, not the files: a lock's pid may have been given to any
// process since.
func clearDisplay() error {
	ctx, cancel := context.WithTimeout(context.Background(), answerPatience)
	defer cancel()
	conn, err := x11.Dial(ctx, display)
	if err == nil {
		defer conn.Close()
		return apierror.New(apierror.Conflict, "display_in_use", "display %s belongs to another X server, pid %d", display, conn.ServerPid())
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return apierror.Wrap(err, apierror.Conflict, "display_in_use", "display %s belongs to another X server that does not answer", display)
	}
	for _, path := range []string{x11.LockPath(display), x11.SocketPath(display)} {
		if err := os.RemoveAll(path); err != nil {
			return apierror.Wrap(err, apierror.Conflict, "display_in_use", "%s is left from another user's X server and cannot be removed", path)
		}
	}
	return nil
}

// resize gives the screen that size and remembers it.
func (s *Stack) resize(ctx context.Context, size Resolution) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := x11.Dial(ctx, display)
	if err != nil {
		return fmt.Errorf("resize: %w", err)
	}
	defer conn.Close()
	if err := conn.SetSize(size.Width, size.Height); err != nil {
		return err
	}
	if s.remembered() == size {
		return nil // a full disk is no reason to fail then
	}
	return s.rememberResolution(size)
}

// resolution is the size the screen should have when nobody asks for another:
// the one it has, or else the last one. A screen as large as it was born is one
// that nobody came to make smaller: that start was killed, or the server reset.
func (s *Stack) resolution(ctx context.Context) Resolution {
	if size, ok := s.screen(ctx); ok && size != maxResolution {
		return size
	}
	return s.remembered()
}

// screen is the size of the screen, if there is one.
func (s *Stack) screen(ctx context.Context) (size Resolution, ok bool) {
	if s.found[xvfb] == nil {
		return Resolution{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := x11.Dial(ctx, display)
	if err != nil {
		return Resolution{}, false
	}
	defer conn.Close()
	w, h, _ := conn.Size()
	return Resolution{w, h}, true
}

// remembered is the size the screen was last given, or the default.
func (s *Stack) remembered() Resolution {
	b, err := daemon.ReadFile(s.resolutionFile())
	if err != nil {
		return s.cfg.Resolution
	}
	r, err := ParseResolution(strings.TrimSpace(string(b)))
	if err != nil {
		return s.cfg.Resolution
	}
	return r
}

func (s *Stack) resolutionFile() string { return filepath.Join(s.cfg.RunDir, "resolution") }

func (s *Stack) rememberResolution(r Resolution) error {
	return daemon.ReplaceFile(s.resolutionFile(), []byte(r.String()+"\n"), 0o644)
}
