package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
	"go.uber.org/zap"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/sessionapi"
	"github.com/cubeplexai/cubepod/sessionapi/idlock"
)

// DefaultNetwork is the network of sandboxes, and with a 0 the name of its
// bridge.
const DefaultNetwork = "cubepod"

// Options configure a Runtime. Which engine it talks to, the environment says
// as for the docker command: DOCKER_HOST and its like.
type Options struct {
	// GuestDir holds guest/podd and, unless podd is to be process 1 itself,
	// guest/podd-init. By default it is the directory of this program.
	GuestDir string
	// Network is the name of the sandboxes' network, [DefaultNetwork] by
	// default. It is made if it is not there.
	Network string
	// ContainerRuntime is what runs containers, such as "runsc" or "kata", for
	// templates that name none; the engine's default otherwise.
	ContainerRuntime string
	// RequireFirewall refuses to start sandboxes while the rules of [Firewall]
	// are not in place.
	RequireFirewall bool
	// Log is where warnings go; nil means nowhere.
	Log *zap.Logger
}

// Runtime is the docker runtime. Make it with [New].
type Runtime struct {
	opts     Options
	log      *zap.Logger
	engine   *client.Client
	locks    idlock.Locks
	firewall firewallCheck
	podd     *http.Transport // asks whether podd is up

	mu      sync.Mutex // guards the fields below, and that only one makes them
	network bool       // the network is there
	guest   guestVolume
	cpus    int // of the engine's host
}

var (
	_ sessionapi.Runtime = (*Runtime)(nil)
	_ sessionapi.Checker = (*Runtime)(nil)
	_ sessionapi.Watcher = (*Runtime)(nil)
	_ sessionapi.Warner  = (*Runtime)(nil)
)

// New returns a Runtime. It does not look whether the engine answers; see
// [Runtime.Check].
func New(opts Options) (*Runtime, error) {
	if opts.GuestDir == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("docker runtime: find guest binaries: %w", err)
		}
		opts.GuestDir = filepath.Dir(self)
	}
	opts.Network = cmp.Or(opts.Network, DefaultNetwork)
	engine, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return nil, fmt.Errorf("docker runtime: %w", err)
	}
	r := &Runtime{opts: opts, log: cmp.Or(opts.Log, zap.NewNop()), engine: engine}
	r.firewall.rules = Firewall{Network: opts.Network}
	r.podd = &http.Transport{DisableKeepAlives: true}
	return r, nil
}

// Close gives back the connections to the engine. Sandboxes go on.
func (r *Runtime) Close() error {
	r.podd.CloseIdleConnections()
	return r.engine.Close()
}

// Name implements sessionapi.Runtime.
func (r *Runtime) Name() string { return "docker" }

// Check implements sessionapi.Checker.
func (r *Runtime) Check(ctx context.Context) error {
	if _, err := r.engine.Ping(ctx); err != nil {
		return unavailable(err, "the Docker engine does not answer")
	}
	if r.opts.RequireFirewall {
		if err := r.firewall.check(ctx); err != nil {
			return unavailable(err, "the firewall rules are not in place: run cubepod-sessionapi firewall")
		}
	}
	return nil
}

// Warnings implements sessionapi.Warner.
func (r *Runtime) Warnings(ctx context.Context) []string {
	if err := r.firewall.check(ctx); err != nil {
		return []string{"sandboxes may reach this host and link-local addresses: " + err.Error() + "; run cubepod-sessionapi firewall"}
	}
	return nil
}

const (
	labelSandbox    = "cubepod.sandbox"
	labelTemplate   = "cubepod.template"
	labelDeployment = "cubepod.deployment"
)

func containerName(id session.ID, incarnation int64) string {
	return fmt.Sprintf("cubepod-%s-%d", id, incarnation)
}

// volumesOf names the volumes of a sandbox by where they are mounted.
func volumesOf(id session.ID) map[string]string {
	prefix := "cubepod-" + string(id) + "-"
	return map[string]string{
		poddapi.Workdir:  prefix + "workspace",
		"/home/cubeplex": prefix + "home",
		"/var/lib/podd":  prefix + "podd",
	}
}

// found is a sandbox's container.
type found struct {
	id          string
	incarnation int64
	state       string
	address     string
}

func (f *found) running() bool { return f.state == "running" }

func (r *Runtime) handle(f found) sessionapi.Handle {
	return sessionapi.Handle{Endpoint: endpoint(f.address), Ref: f.id}
}

func endpoint(address string) session.Endpoint {
	return session.Endpoint(address + ":" + strconv.Itoa(poddapi.Port))
}

// containers gives the containers of a sandbox, the latest incarnation first.
// There is one, or a program was interrupted.
func (r *Runtime) containers(ctx context.Context, id session.ID) ([]found, error) {
	list, err := r.engine.ContainerList(ctx, container.ListOptions{
		All: true, Filters: filters.NewArgs(filters.Arg("label", labelSandbox+"="+string(id))),
	})
	if err != nil {
		return nil, engineError(ctx, err)
	}
	var out []found
	for _, c := range list {
		f := found{id: c.ID, state: c.State}
		for _, name := range c.Names {
			digits, ok := strings.CutPrefix(name, "/cubepod-"+string(id)+"-")
			if n, err := strconv.ParseInt(digits, 10, 64); ok && err == nil {
				f.incarnation = n
			}
		}
		if c.NetworkSettings != nil {
			if n := c.NetworkSettings.Networks[r.opts.Network]; n != nil {
				f.address = n.IPAddress
			}
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b found) int { return cmp.Compare(b.incarnation, a.incarnation) })
	return out, nil
}

// Inspect implements sessionapi.Runtime.
func (r *Runtime) Inspect(ctx context.Context, id session.ID) (sessionapi.Status, error) {
	list, err := r.containers(ctx, id)
	if err != nil {
		return sessionapi.Status{}, fmt.Errorf("inspect %s: %w", id, err)
	}
	if len(list) > 0 {
		st := sessionapi.Status{Incarnation: list[0].incarnation}
		if list[0].running() && list[0].address != "" {
			st.Running, st.Handle = true, r.handle(list[0])
		}
		return st, nil
	}
	for _, name := range volumesOf(id) {
		_, err := r.engine.VolumeInspect(ctx, name)
		switch {
		case err == nil:
			return sessionapi.Status{Removed: true}, nil
		case !errdefs.IsNotFound(err):
			return sessionapi.Status{}, fmt.Errorf("inspect %s: %w", id, engineError(ctx, err))
		}
	}
	return sessionapi.Status{}, apierror.New(apierror.NotFound, "sandbox_not_found", "the docker runtime has no sandbox %s", id)
}

// List implements sessionapi.Runtime.
func (r *Runtime) List(ctx context.Context, deployment string) iter.Seq2[session.ID, error] {
	return func(yield func(session.ID, error) bool) {
		ours := filters.NewArgs(filters.Arg("label", labelSandbox), filters.Arg("label", labelDeployment+"="+deployment))
		cs, err := r.engine.ContainerList(ctx, container.ListOptions{All: true, Filters: ours})
		if err != nil {
			yield("", fmt.Errorf("list sandboxes: %w", engineError(ctx, err)))
			return
		}
		vs, err := r.engine.VolumeList(ctx, volume.ListOptions{Filters: ours})
		if err != nil {
			yield("", fmt.Errorf("list sandboxes: %w", engineError(ctx, err)))
			return
		}
		seen := map[session.ID]bool{}
		var labels []map[string]string
		for _, c := range cs {
			labels = append(labels, c.Labels)
		}
		for _, v := range vs.Volumes {
			labels = append(labels, v.Labels)
		}
		for _, l := range labels {
			id, ok := session.ParseID(l[labelSandbox])
			if !ok || seen[id] {
				continue
			}
			seen[id] = true
			if !yield(id, nil) {
				return
			}
		}
	}
}

// engineError makes the caller's own end of what the client says about it.
func engineError(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if client.IsErrConnectionFailed(err) {
		return unavailable(err, "the Docker engine does not answer")
	}
	return err
}

func unavailable(err error, format string, args ...any) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return apierror.Wrap(err, apierror.Unavailable, "runtime_unavailable", format, args...)
}
