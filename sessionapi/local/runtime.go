package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"go.uber.org/zap"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/sessionapi"
	"github.com/cubeplexai/cubepod/sessionapi/idlock"
)

// Options configure a Runtime.
type Options struct {
	// Data is the directory for everything of all sandboxes, ".cubepod" by
	// default. It is made if it is not there.
	Data string
	// GuestDir holds guest/podd, and desktop/ for templates with a desktop. By
	// default it is the directory of this program.
	GuestDir string
	// Offline gives sandboxes no network even if the host could.
	Offline bool
	// Log is where warnings go; nil means nowhere.
	Log *zap.Logger
}

// Runtime is the local runtime. Make it with [New].
type Runtime struct {
	opts  Options
	log   *zap.Logger
	locks idlock.Locks

	hostMu sync.Mutex  // guards the field below
	host   supervision // what probe found

	watchMu  sync.Mutex                          // guards the field below
	watchers map[chan session.ID]<-chan struct{} // closed when it watches no more

	// The goroutines that reap supervisors live until life ends.
	life   context.Context
	end    context.CancelFunc
	reaper sync.WaitGroup
}

var (
	_ sessionapi.Runtime = (*Runtime)(nil)
	_ sessionapi.Watcher = (*Runtime)(nil)
)

// maxSocketPath is the longest path of a Unix socket: sun_path without its
// closing 0.
const maxSocketPath = 107

// New prepares the data directory and returns a Runtime. It does not look
// whether this machine can run sandboxes; see [Runtime.Check].
func New(opts Options) (*Runtime, error) {
	var err error
	if opts.Data, err = filepath.Abs(cmp.Or(opts.Data, ".cubepod")); err != nil {
		return nil, fmt.Errorf("local runtime: %w", err)
	}
	if opts.GuestDir == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("local runtime: find guest binaries: %w", err)
		}
		opts.GuestDir = filepath.Dir(self)
	}
	if opts.GuestDir, err = filepath.Abs(opts.GuestDir); err != nil {
		return nil, fmt.Errorf("local runtime: %w", err)
	}
	r := &Runtime{opts: opts, log: cmp.Or(opts.Log, zap.NewNop()), watchers: map[chan session.ID]<-chan struct{}{}}
	r.life, r.end = context.WithCancel(context.Background())

	// Ten digits of incarnations are plenty.
	if longest := r.socket(session.LocalEndpoint("abcdefghij0123456789", 9_999_999_999)); len(longest) > maxSocketPath {
		return nil, fmt.Errorf("local runtime: the path of the data directory %s is %d characters too long for the Unix sockets in it",
			opts.Data, len(longest)-maxSocketPath)
	}
	if err := makeData(opts.Data, r.SocketDir(), r.sandboxes()); err != nil {
		return nil, fmt.Errorf("local runtime: %w", err)
	}
	return r, nil
}

// makeData makes directories that only root passes: files below may belong to
// uid 1000, who may be a user of this machine.
func makeData(data string, sub ...string) error {
	existing := data
	resolved, err := filepath.EvalSymlinks(existing)
	for errors.Is(err, fs.ErrNotExist) && existing != "/" {
		existing = filepath.Dir(existing)
		resolved, err = filepath.EvalSymlinks(existing)
	}
	if err != nil {
		return err
	}
	if strings.HasPrefix(resolved+"/", "/usr/") {
		return fmt.Errorf("the data directory %s lies under /usr, which every sandbox sees", data)
	}
	for _, dir := range append([]string{data}, sub...) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// Close ends what this Runtime does in the background and waits for it.
// Sandboxes go on; stop those that should not first.
func (r *Runtime) Close() error {
	r.end()
	r.reaper.Wait()
	return nil
}

// Name implements sessionapi.Runtime.
func (r *Runtime) Name() string { return "local" }

// SocketDir is the directory that the endpoints of this runtime are relative
// to.
func (r *Runtime) SocketDir() string { return filepath.Join(r.opts.Data, "sockets") }

func (r *Runtime) sandboxes() string            { return filepath.Join(r.opts.Data, "sandboxes") }
func (r *Runtime) dir(id session.ID) string     { return filepath.Join(r.sandboxes(), string(id)) }
func (r *Runtime) runDir(id session.ID) string  { return filepath.Join(r.dir(id), "run") }
func (r *Runtime) logPath(id session.ID) string { return filepath.Join(r.dir(id), "log") }

// mark is an argument of every process of the sandbox' chain: what is bound as
// /run/podd. Whatever else bears it is killed with the chain.
func (r *Runtime) mark(id session.ID) string { return r.runDir(id) }

// socket is the path of a local endpoint.
func (r *Runtime) socket(ep session.Endpoint) string {
	rel, _ := ep.Socket()
	return filepath.Join(r.SocketDir(), rel)
}

func handle(id session.ID, incarnation int64) sessionapi.Handle {
	return sessionapi.Handle{
		Endpoint: session.LocalEndpoint(id, incarnation),
		Ref:      fmt.Sprintf("%s-%d", id, incarnation),
	}
}

// Inspect implements sessionapi.Runtime.
func (r *Runtime) Inspect(_ context.Context, id session.ID) (sessionapi.Status, error) {
	st, err := r.readState(id)
	if errors.Is(err, fs.ErrNotExist) {
		return sessionapi.Status{}, apierror.New(apierror.NotFound, "sandbox_not_found", "the local runtime has no sandbox %s", id)
	}
	if err != nil {
		return sessionapi.Status{}, fmt.Errorf("inspect %s: %w", id, err)
	}
	status := sessionapi.Status{Incarnation: st.Incarnation}
	p, err := r.supervisor(id, st)
	if errors.Is(err, os.ErrProcessDone) {
		return status, nil
	}
	if err != nil {
		return sessionapi.Status{}, fmt.Errorf("inspect %s: %w", id, err)
	}
	p.close()
	status.Running, status.Handle = true, handle(id, st.Incarnation)
	return status, nil
}

// List implements sessionapi.Runtime.
func (r *Runtime) List(ctx context.Context, deployment string) iter.Seq2[session.ID, error] {
	return func(yield func(session.ID, error) bool) {
		entries, err := os.ReadDir(r.sandboxes())
		if err != nil {
			yield("", fmt.Errorf("list sandboxes: %w", err))
			return
		}
		for _, e := range entries {
			if ctx.Err() != nil {
				yield("", context.Cause(ctx))
				return
			}
			id, ok := session.ParseID(e.Name())
			if !ok || !e.IsDir() {
				continue
			}
			st, err := r.readState(id)
			if errors.Is(err, fs.ErrNotExist) || err == nil && st.Deployment != deployment {
				continue
			}
			if err != nil {
				yield("", fmt.Errorf("list sandboxes: %w", err))
				return
			}
			if !yield(id, nil) {
				return
			}
		}
	}
}
