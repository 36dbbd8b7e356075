package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"
	"go.uber.org/zap"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/sessionapi"
)

const (
	// readyTimeout bounds the time from the start of a container to podd's
	// first answer.
	readyTimeout = 60 * time.Second
	// readyTick is how often podd is asked.
	readyTick = 5 * time.Millisecond
	// cleanupTimeout bounds the clean-up of a failed start, whose own context
	// may have ended.
	cleanupTimeout = 30 * time.Second
)

// Start implements sessionapi.Runtime. It also reports apierror.Conflict if a
// later incarnation runs.
func (r *Runtime) Start(ctx context.Context, spec sessionapi.Spec) (sessionapi.Handle, error) {
	release, err := r.locks.Acquire(ctx, spec.ID)
	if err != nil {
		return sessionapi.Handle{}, err
	}
	defer release()
	f, err := r.start(ctx, spec)
	if err != nil {
		return sessionapi.Handle{}, fmt.Errorf("start %s: %w", spec.ID, engineError(ctx, err))
	}
	return r.handle(f), nil
}

func (r *Runtime) start(ctx context.Context, spec sessionapi.Spec) (found, error) {
	if _, ok := session.ParseID(string(spec.ID)); !ok {
		return found{}, fmt.Errorf("%q is no sandbox id", spec.ID)
	}
	if ctx.Err() != nil {
		return found{}, context.Cause(ctx)
	}
	if r.opts.RequireFirewall {
		if err := r.firewall.check(ctx); err != nil {
			return found{}, unavailable(err, "the firewall rules are not in place: run cubepod-sessionapi firewall")
		}
	}
	old, err := r.takeOver(ctx, spec)
	if err != nil {
		return found{}, err
	}
	if old.running() {
		return old, nil
	}
	if old.id != "" {
		f, err := r.launch(ctx, spec, old.id, false)
		if err == nil || !errdefs.IsNotFound(err) {
			return f, err
		}
		// Its network was removed, say. The files that matter are in volumes.
		r.log.Warn("container cannot be started again, making it anew", zap.String("sandbox", string(spec.ID)), zap.Error(err))
		if err := r.remove(ctx, old.id); err != nil {
			return found{}, err
		}
		r.forgetNetwork()
	}
	id, err := r.create(ctx, spec)
	if err != nil {
		return found{}, err
	}
	f, err := r.launch(ctx, spec, id, true)
	if err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		err = errors.Join(err, r.remove(clean, id))
	}
	return f, err
}

// takeOver deals with what earlier starts left. It gives the incarnation's
// container if that is up, a stopped one, or none.
func (r *Runtime) takeOver(ctx context.Context, spec sessionapi.Spec) (found, error) {
	list, err := r.containers(ctx, spec.ID)
	if err != nil || len(list) == 0 {
		return found{}, err
	}
	for _, extra := range list[1:] {
		if err := r.remove(ctx, extra.id); err != nil {
			return found{}, err
		}
	}
	f := list[0]
	switch {
	case f.state == "removing" || f.state == "dead":
		return found{}, r.remove(ctx, f.id)
	case f.running() && f.incarnation > spec.Incarnation:
		return found{}, apierror.New(apierror.Conflict, "sandbox_state", "a later incarnation of the sandbox runs")
	case f.running() && f.incarnation == spec.Incarnation:
		// The program that started it may have ended before podd was ready. If
		// podd does not answer, it is started anew.
		if r.awaitReady(ctx, f) == nil {
			return f, nil
		}
		if ctx.Err() != nil {
			return found{}, context.Cause(ctx)
		}
	}
	if f.state != "created" && f.state != "exited" {
		if err := r.halt(ctx, f.id); err != nil {
			return found{}, err
		}
	}
	f.state = "exited"
	return f, nil
}

// launch starts a stopped container as the incarnation of spec, and waits for
// podd. The token comes first and the name second: a container that bears the
// incarnation's name has its token.
func (r *Runtime) launch(ctx context.Context, spec sessionapi.Spec, id string, fresh bool) (_ found, err error) {
	if err := r.engine.CopyToContainer(ctx, id, "/", guestFiles(spec, fresh), container.CopyToContainerOptions{}); err != nil {
		return found{}, fmt.Errorf("put token: %w", err)
	}
	if !fresh {
		name := containerName(spec.ID, spec.Incarnation)
		if err := r.engine.ContainerRename(ctx, id, name); err != nil && !sameName(err) {
			return found{}, fmt.Errorf("rename container: %w", err)
		}
	}
	if err := r.engine.ContainerStart(ctx, id, container.StartOptions{}); err != nil {
		return found{}, fmt.Errorf("start container: %w", err)
	}
	defer func() {
		if err != nil && !fresh { // a fresh one is removed
			clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
			defer cancel()
			err = errors.Join(err, r.halt(clean, id))
		}
	}()
	info, err := r.engine.ContainerInspect(ctx, id)
	if err != nil {
		return found{}, err
	}
	f := found{id: id, incarnation: spec.Incarnation, state: "running"}
	if n := info.NetworkSettings.Networks[r.opts.Network]; n != nil {
		f.address = n.IPAddress
	}
	if f.address == "" {
		return found{}, unavailable(errors.New(r.logTail(ctx, id)), "the sandbox ended while it was starting")
	}
	return f, r.awaitReady(ctx, f)
}

// guestFiles is what is put into a container before it starts.
func guestFiles(spec sessionapi.Spec, fresh bool) io.Reader {
	var out bytes.Buffer
	tw := tar.NewWriter(&out)
	dir := func(name string, uid int, mode int64) {
		_ = tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode, Uid: uid, Gid: uid}) // to memory
	}
	if fresh { // images need not know the guest user
		dir("workspace/", poddapi.GuestUID, 0o755)
		dir("home/cubeplex/", poddapi.GuestUID, 0o755)
		dir("var/lib/podd/", 0, 0o700)
	}
	tokens := poddapi.TokenFile(spec.FullToken, spec.TunnelToken)
	dir("run/podd/", 0, 0o700)
	_ = tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "run/podd/token", Mode: 0o600, Size: int64(len(tokens))})
	_, _ = io.WriteString(tw, tokens)
	_ = tw.Close()
	return &out
}

// awaitReady returns when podd answers.
func (r *Runtime) awaitReady(ctx context.Context, f found) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("podd did not answer within %v", readyTimeout))
	defer cancel()
	podd := poddapi.NewClient(podAt{r.podd, string(endpoint(f.address))}, "")
	ended, failed := r.engine.ContainerWait(ctx, f.id, container.WaitConditionNotRunning)
	tick := time.NewTicker(readyTick)
	defer tick.Stop()
	for {
		_, err := r.health(ctx, podd)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ended:
			return unavailable(errors.New(r.logTail(ctx, f.id)), "the sandbox ended while it was starting")
		case werr := <-failed:
			if ctx.Err() == nil {
				return werr
			}
			return fmt.Errorf("wait for podd: %w; last: %w; %s", context.Cause(ctx), err, r.logTail(ctx, f.id))
		}
	}
}

// health asks podd once. An address that does not answer, of a container that
// ended meanwhile, must not hold up the next try.
func (r *Runtime) health(ctx context.Context, podd *poddapi.Client) (poddapi.Health, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return podd.Health(ctx)
}

// podAt sends requests to one address.
type podAt struct {
	transport *http.Transport
	address   string
}

// RoundTrip implements http.RoundTripper.
func (p podAt) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.URL.Host = p.address
	return p.transport.RoundTrip(req)
}

// logTail gives the end of what the container said, for an error's cause.
func (r *Runtime) logTail(ctx context.Context, id string) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	logs, err := r.engine.ContainerLogs(ctx, id, container.LogsOptions{ShowStdout: true, ShowStderr: true, Tail: "20"})
	if err != nil {
		return "no log"
	}
	defer logs.Close()
	var out bytes.Buffer
	_, _ = stdcopy.StdCopy(&out, &out, io.LimitReader(logs, 8<<10)) // what can be read
	return "log: " + out.String()
}
