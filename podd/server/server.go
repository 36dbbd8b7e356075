// Package server is podd's HTTP side: who may call, what the calls are, and
// how their answers look. What the calls do is done by the packages beside it.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/podd/command"
	"github.com/cubeplexai/cubepod/podd/tunnel"
)

// Options of a Server. Zero fields take their defaults.
type Options struct {
	// Addr is host:port or unix:PATH; poddapi.Addr.
	Addr string
	// Tokens are what callers must show. Without any, every caller is served.
	Tokens Tokens
	// Workdir is reported by /health and is where relative file paths start;
	// poddapi.Workdir.
	Workdir string
	// EnvFile is what PUT /v1/env writes; poddapi.EnvFile.
	EnvFile string
	// InitState is how podd-init prepared the sandbox: ready, overlay,
	// no_overlay, or none, which is the default.
	InitState string
	// Version is reported by /health.
	Version string
	// Desktop is stopped before the sandbox is, when there is one.
	Desktop Desktop
	// Patience is how long a caller may leave a read or write of a transfer
	// waiting; a minute.
	Patience time.Duration
	// SetClock corrects the sandbox's clock; by default the kernel's is set.
	SetClock func(time.Time) error
	Log      *log.Logger
}

// Desktop is the graphical stack of the sandbox.
type Desktop interface {
	// Stop ends it cleanly and keeps it from being woken. Stopping what does
	// not run succeeds.
	Stop(ctx context.Context) error
	// Allow lets it be woken again.
	Allow()
}

// Server answers podd's calls.
type Server struct {
	o         Options
	commands  *command.Manager
	tunnels   *tunnel.Registry
	http      *http.Server
	listener  net.Listener
	started   time.Time
	lifecycle sync.Mutex // held by prepare-stop and resume
	refused   atomic.Int64
	end       context.CancelCauseFunc // of the context of every call
}

// New returns a Server for the commands of m that is not yet listening.
func New(m *command.Manager, o Options) *Server {
	o.Addr = cmp.Or(o.Addr, poddapi.Addr)
	o.Workdir = cmp.Or(o.Workdir, poddapi.Workdir)
	o.EnvFile = cmp.Or(o.EnvFile, poddapi.EnvFile)
	o.InitState = cmp.Or(o.InitState, "none")
	o.Patience = cmp.Or(o.Patience, patience)
	if o.SetClock == nil {
		o.SetClock = setClock
	}
	if o.Log == nil {
		o.Log = log.Default()
	}
	s := &Server{o: o, commands: m, tunnels: tunnel.NewRegistry(), started: time.Now()}
	life, end := context.WithCancelCause(context.Background())
	s.end = end
	s.http = &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       5 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          o.Log,
		BaseContext:       func(net.Listener) context.Context { return life },
	}
	return s
}

// Handler answers the calls without a listener.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// Listen takes the address.
func (s *Server) Listen() error {
	path, isUnix := strings.CutPrefix(s.o.Addr, "unix:")
	if !isUnix {
		l, err := net.Listen("tcp", s.o.Addr)
		s.listener = l
		return err
	}
	l, err := listenUnix(path)
	s.listener = l
	return err
}

// listenUnix makes a socket that only podd's own user may connect to. One that
// nobody listens on any more is replaced.
func listenUnix(path string) (net.Listener, error) {
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, fmt.Errorf("listen unix %s: %w", path, syscall.EADDRINUSE)
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		if fi, err := os.Lstat(path); err == nil && fi.Mode().Type() == fs.ModeSocket {
			os.Remove(path)
		}
	}
	// The socket has its mode from the first moment: the umask decides it.
	old := syscall.Umask(0o177)
	defer syscall.Umask(old)
	return net.Listen("unix", path)
}

// Addr is where the Server listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Serve answers calls until Close. Listen comes first.
func (s *Server) Serve() error {
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close takes no more calls, ends the tunnels and the waiting calls, and waits
// until ctx for the others.
func (s *Server) Close(ctx context.Context) error {
	s.end(apierror.New(apierror.Unavailable, "stopping", "podd is ending"))
	s.tunnels.Close()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	return err
}
