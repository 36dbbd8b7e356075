package server

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/cubeplexai/cubepod/internal/poddapi"
	"golang.org/x/sys/unix"
)

// desktopStop bounds how long the desktop may take to end cleanly.
const desktopStop = 20 * time.Second

func (s *Server) health(w http.ResponseWriter, _ *http.Request) error {
	return s.reply(w, poddapi.Health{
		Status: "ok", Daemon: "podd", Version: s.o.Version, Workdir: s.o.Workdir,
		ActiveProcesses: s.commands.Active(), InitState: s.o.InitState,
	})
}

// prepareStop refuses new commands, closes the desktop and puts everything on
// the disk. What podd has acknowledged before is safe when it answers.
func (s *Server) prepareStop(w http.ResponseWriter, r *http.Request) error {
	s.lifecycle.Lock()
	defer s.lifecycle.Unlock()
	s.commands.Hold()
	// A caller that gives up must not leave it half done.
	ctx := context.WithoutCancel(r.Context())
	if s.o.Desktop != nil {
		ctx, cancel := context.WithTimeout(ctx, desktopStop)
		defer cancel()
		if err := s.o.Desktop.Stop(ctx); err != nil {
			s.o.Log.Printf("stop desktop: %v", err)
		}
	}
	if err := errors.Join(s.commands.Sync(), s.sync()); err != nil {
		return err
	}
	return s.reply(w, poddapi.Stopped{Status: "synced", ActiveProcesses: s.commands.Active()})
}

// sync flushes the file systems that a sandbox keeps.
func (s *Server) sync() error {
	var errs []error
	for _, dir := range []string{"/", s.o.Workdir, "/home"} {
		d, err := os.Open(dir)
		if err != nil {
			continue // it is not there: nothing to keep
		}
		if err := unix.Syncfs(int(d.Fd())); err != nil {
			errs = append(errs, &os.PathError{Op: "sync", Path: dir, Err: err})
		}
		d.Close()
	}
	return errors.Join(errs...)
}

func (s *Server) resume(w http.ResponseWriter, r *http.Request) error {
	var req poddapi.ResumeRequest
	if err := s.body(w, r, &req); err != nil {
		return err
	}
	s.lifecycle.Lock()
	defer s.lifecycle.Unlock()
	if req.Now != nil {
		s.correctClock(*req.Now)
	}
	s.commands.Release()
	if s.o.Desktop != nil {
		s.o.Desktop.Allow()
	}
	return s.reply(w, poddapi.Resumed{Status: "running"})
}

// A guest that slept is behind. One that is a little ahead of a message that
// took its time is right.
const (
	behind = 100 * time.Millisecond
	ahead  = 5 * time.Second
)

// correctClock sets the clock by the caller's when it is off and podd may.
func (s *Server) correctClock(now time.Time) {
	if d := time.Until(now); d < behind && d > -ahead {
		return
	}
	if err := s.o.SetClock(now); err != nil && !errors.Is(err, unix.EPERM) {
		s.o.Log.Printf("set clock: %v", err)
	}
}

func setClock(now time.Time) error {
	ts := unix.NsecToTimespec(now.UnixNano())
	return unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
}
