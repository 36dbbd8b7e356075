// Package sessionapi is the session API: it creates sandboxes, hands calls on
// to the daemon in them, and mints the URLs under which the edge shows their
// ports. It keeps no state in memory, so any replica serves any sandbox.
//
// A sandbox moves between its states under a lease:
//
//	creating ──► running ──► pausing ──► paused ──► resuming ──► running
//	    │            └───────────┬──────────┘            │
//	    │                        ▼                       └► paused (undone)
//	    └──────────────────► deleting ──► deleted (a tombstone that expires)
//
// failed is where a sandbox ends that the runtime lost. It can be deleted and,
// when its files are there still, resumed.
// The holder of the lease writes the passing state, does the work, and writes
// the result together with the lease's release. A replica that dies leaves a
// passing state and a lease that expires: whoever comes next, a caller or the
// janitor, takes the lease, looks at what the runtime really has, and finishes
// or undoes the work. See drive.go.
package sessionapi

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/keyfile"
	"github.com/cubeplexai/cubepod/internal/paneltoken"
	"github.com/cubeplexai/cubepod/internal/session"
)

// Keys are the secrets a Service works with.
type Keys struct {
	// Master and Tunnel derive podd's tokens.
	Master, Tunnel keyfile.Keys
	// Panel signs (the first) and verifies panel tokens.
	Panel keyfile.Keys
}

// Options are what New can be told; zero fields take their default.
type Options struct {
	// Templates are the kinds of sandboxes; default [BuiltinTemplates].
	Templates map[string]Template
	// PanelBaseURL is put before panel paths; empty leaves URLs relative.
	// "{sandbox}" in its host becomes the sandbox's id.
	PanelBaseURL string
	// HideCDP keeps port 9222 from being shown to anybody.
	HideCDP bool
	// NoDesktop switches the desktop calls off.
	NoDesktop bool
	// RateLimit is how many requests a second each API key may make of this
	// server, over some time; twice as many may come at once. Default none.
	RateLimit float64
	// Warnings gives what else an operator should know; default nothing.
	Warnings func() []string
	// AllowUpstream are the prefixes a port's own address may be in; default
	// none.
	AllowUpstream []netip.Prefix
	// SocketDir holds podd's Unix sockets, for the local runtime.
	SocketDir string

	// LeaseTTL is after how long the work of a dead replica is taken over;
	// default 15 s.
	LeaseTTL time.Duration
	// WorkTimeout bounds one change of state; default 2 min.
	WorkTimeout time.Duration
	// WaitTimeout bounds how long a call waits for another's work; default
	// 90 s.
	WaitTimeout time.Duration
	// WakeWait is how long a wake call waits before it says "in progress";
	// default 20 s.
	WakeWait time.Duration
	// DesktopTimeout bounds a call of the desktop's supervisor; default 100 s,
	// which is longer than it gives its own start, so that its own error is
	// heard.
	DesktopTimeout time.Duration
	// PoddSilence is after how long calls give a podd up that gives no sign of
	// life; default 15 s.
	PoddSilence time.Duration
	// SweepInterval is how often the janitor looks; default 1 s.
	SweepInterval time.Duration
	// AuditInterval is how often it goes through all sandboxes; default 1 min.
	AuditInterval time.Duration

	// Now is this machine's clock; default time.Now. How far it is from the
	// store's does not matter.
	Now func() time.Time
	// Logger defaults to none.
	Logger *zap.Logger
	// Metrics defaults to none.
	Metrics *Metrics
}

func (o *Options) withDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	if out.Templates == nil {
		out.Templates = BuiltinTemplates()
	}
	for d, def := range map[*time.Duration]time.Duration{
		&out.LeaseTTL:       15 * time.Second,
		&out.WorkTimeout:    2 * time.Minute,
		&out.WaitTimeout:    90 * time.Second,
		&out.WakeWait:       20 * time.Second,
		&out.DesktopTimeout: 100 * time.Second,
		&out.PoddSilence:    15 * time.Second,
		&out.SweepInterval:  time.Second,
		&out.AuditInterval:  time.Minute,
	} {
		if *d <= 0 {
			*d = def
		}
	}
	if out.Now == nil {
		out.Now = time.Now
	}
	if out.Logger == nil {
		out.Logger = zap.NewNop()
	}
	return out
}

// Service is the session API without its HTTP face. It is safe for concurrent
// use.
type Service struct {
	runtime Runtime
	store   Store
	keys    Keys
	// templates is replaced whole.
	templates atomic.Pointer[map[string]Template]
	signer    *paneltoken.Signer
	verifier  *paneltoken.Verifier
	opts      Options
	log       *zap.Logger
	metrics   *Metrics
	podds     *podds
	clock     clock
	pool      pool
	changes   *changes

	ctx context.Context // the Service's own lifetime
	end context.CancelCauseFunc
	// streams ends before that, see EndStreams.
	streams    context.Context
	endStreams context.CancelCauseFunc

	mu         sync.Mutex // guards the fields below
	closed     bool
	tasks      sync.WaitGroup
	shares     map[string]*shared
	deployment string // empty until the store was asked
}

var errClosed = &apierror.Error{
	Kind: apierror.Unavailable, Code: "shutting_down", Detail: "this server is shutting down", RetryAfter: time.Second,
}

// New returns a Service that sweeps and listens for changes until Close. opts
// may be nil.
func New(rt Runtime, st Store, keys Keys, opts *Options) (*Service, error) {
	if len(keys.Master) == 0 || len(keys.Tunnel) == 0 || len(keys.Panel) == 0 {
		return nil, errors.New("session api: a master, a tunnel and a panel key are needed")
	}
	signer, err := paneltoken.NewSigner(keys.Panel)
	if err != nil {
		return nil, err
	}
	s := &Service{
		runtime:  rt,
		store:    st,
		keys:     keys,
		signer:   signer,
		verifier: paneltoken.NewVerifier(keys.Panel),
		opts:     opts.withDefaults(),
		changes:  newChanges(),
		shares:   map[string]*shared{},
	}
	s.SetTemplates(s.opts.Templates)
	s.clock.own = s.opts.Now
	s.log, s.metrics = s.opts.Logger, s.opts.Metrics
	s.podds = newPodds(s.opts.SocketDir, s.opts.PoddSilence)
	s.ctx, s.end = context.WithCancelCause(context.Background())
	s.streams, s.endStreams = context.WithCancelCause(s.ctx)
	s.spawn(func() { s.store.Watch(s.ctx, s.changes.notify) })
	s.spawn(func() { s.clock.follow(s.ctx, s.store) })
	s.spawn(s.sweepLoop)
	if w, ok := rt.(Watcher); ok {
		s.spawn(func() { s.watchRuntime(w) })
	}
	return s, nil
}

// EndStreams ends the calls that are handed on to sandboxes, and the streams of
// events: those take as long as somebody likes. What changes where a sandbox
// stands goes on. A server calls it on its way down.
func (s *Service) EndStreams() { s.endStreams(errClosed) }

// Close ends what the Service does by itself and waits for it. Work under way
// is broken off and its lease given back, so that another replica goes on with
// it at once.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end(errClosed)
	s.tasks.Wait()
	s.podds.close()
}

// spawn runs f in a goroutine that Close waits for. It reports whether it did.
func (s *Service) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.tasks.Go(f)
	return true
}

// Ready reports whether the store and the runtime answer.
func (s *Service) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := s.store.Ping(ctx); err != nil {
		return err
	}
	if c, ok := s.runtime.(Checker); ok {
		if err := c.Check(ctx); err != nil {
			return runtimeUnavailable(err)
		}
	}
	return nil
}

// Warnings gives what an operator should know although everything works.
func (s *Service) Warnings(ctx context.Context) []string {
	var out []string
	if w, ok := s.runtime.(Warner); ok {
		out = w.Warnings(ctx)
	}
	if s.opts.Warnings != nil {
		out = append(out, s.opts.Warnings()...)
	}
	return out
}

// SetTemplates makes these the kinds of sandboxes, for starts from now on.
func (s *Service) SetTemplates(templates map[string]Template) { s.templates.Store(&templates) }

func (s *Service) template(name string) (Template, bool) {
	t, ok := (*s.templates.Load())[name]
	return t, ok
}

// Find gives the record of a sandbox that caller may see.
func (s *Service) Find(ctx context.Context, caller Caller, id session.ID) (*session.Record, error) {
	e, err := s.store.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if e.Record.State == session.Deleted || !caller.mayUse(e.Record) {
		return nil, NotFound(id)
	}
	return e.Record, nil
}

func runtimeUnavailable(err error) error {
	if e, ok := errors.AsType[*apierror.Error](err); ok && e.Kind != apierror.Internal {
		return err
	}
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	return &apierror.Error{
		Kind: apierror.Unavailable, Code: "runtime_unavailable", Detail: "the runtime cannot do it now",
		RetryAfter: 5 * time.Second, Err: err,
	}
}
