package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/sessionapi"
)

const (
	// readyTimeout bounds the time from the first process to podd's first
	// answer, which takes about 100 ms on an idle machine.
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
	if err := r.start(ctx, spec); err != nil {
		return sessionapi.Handle{}, fmt.Errorf("start %s: %w", spec.ID, err)
	}
	return handle(spec.ID, spec.Incarnation), nil
}

func (r *Runtime) start(ctx context.Context, spec sessionapi.Spec) error {
	if _, ok := session.ParseID(string(spec.ID)); !ok {
		return fmt.Errorf("%q is no sandbox id", spec.ID)
	}
	sup, err := r.probe(ctx)
	if err != nil {
		return err
	}
	done, err := r.takeOver(ctx, spec)
	if done || err != nil {
		return err
	}
	if err := r.launch(ctx, sup, spec); err != nil {
		// The clean-up outlives a caller that went away.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		return errors.Join(err, r.stop(ctx, spec.ID))
	}
	return nil
}

// takeOver deals with what an earlier Start left. It reports true if the
// incarnation is up.
func (r *Runtime) takeOver(ctx context.Context, spec sessionapi.Spec) (bool, error) {
	st, err := r.readState(spec.ID)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	p, err := r.supervisor(spec.ID, st)
	switch {
	case errors.Is(err, os.ErrProcessDone):
	case err != nil:
		return false, err
	default:
		defer p.close()
		if st.Incarnation > spec.Incarnation {
			return false, apierror.New(apierror.Conflict, "sandbox_state", "a later incarnation of the sandbox runs")
		}
		// The program that started it may have ended before podd was ready. If
		// podd does not answer, it is started anew.
		if st.Incarnation == spec.Incarnation && r.awaitReady(ctx, spec, p) == nil {
			return true, nil
		}
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
	}
	return false, r.stop(ctx, spec.ID)
}

// launch starts the chain of processes and waits for podd.
func (r *Runtime) launch(ctx context.Context, sup supervision, spec sessionapi.Spec) error {
	argv, err := r.prepare(sup, spec)
	if err != nil {
		return err
	}
	st := state{Incarnation: spec.Incarnation, Deployment: spec.Deployment, Starting: true}
	if err := r.writeState(spec.ID, st); err != nil {
		return err
	}
	p, err := r.spawn(spec.ID, argv)
	if err != nil {
		return err
	}
	defer p.close()
	st.Starting, st.Supervisor = false, &p.procRef
	if err := r.writeState(spec.ID, st); err != nil {
		return err
	}
	if err := r.awaitReady(ctx, spec, p); err != nil {
		return err
	}
	if st.Init, err = r.initOf(spec.ID, p); err != nil {
		return err
	}
	return r.writeState(spec.ID, st)
}

// prepare makes the directories of a start and returns its command line.
func (r *Runtime) prepare(sup supervision, spec sessionapi.Spec) ([]string, error) {
	dir := r.dir(spec.ID)
	dirs := guestDirs{
		workspace: filepath.Join(dir, "workspace"),
		home:      filepath.Join(dir, "home"),
		podd:      filepath.Join(dir, "podd"),
		run:       r.runDir(spec.ID),
		etc:       filepath.Join(dir, "etc"),
		bin:       filepath.Join(r.opts.GuestDir, "guest"),
	}
	if spec.Template.Desktop {
		dirs.desktop = filepath.Join(r.opts.GuestDir, "desktop")
		if _, err := os.Stat(dirs.desktop); err != nil {
			return nil, unavailable(err, "the local runtime finds no desktop at %s: run make build", dirs.desktop)
		}
	}
	for path, uid := range map[string]int{dirs.workspace: poddapi.GuestUID, dirs.home: poddapi.GuestUID, dirs.podd: 0, dirs.run: 0} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, err
		}
		if uid == 0 {
			continue
		}
		if err := errors.Join(os.Chown(path, uid, poddapi.GuestGID), os.Chmod(path, 0o755)); err != nil {
			return nil, err
		}
	}
	hostResolv, err := os.ReadFile("/etc/resolv.conf")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	etcFiles := generatedEtc(spec.ID, string(hostResolv), sup.offline)
	if err := writeEtc(dirs.etc, etcFiles); err != nil {
		return nil, err
	}
	tokens := []byte(poddapi.TokenFile(spec.FullToken, spec.TunnelToken))
	if err := os.WriteFile(filepath.Join(dirs.run, "token"), tokens, 0o600); err != nil {
		return nil, err
	}

	return slices.Concat(sup.argv, bwrapArgs(spec, sup.offline, dirs, etcFiles), poddArgv()), nil
}

// spawn starts argv so that it outlives this program: a session of its own, and
// no open file of ours but the log.
func (r *Runtime) spawn(id session.ID, argv []string) (*process, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	log, err := os.OpenFile(r.logPath(id), os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	// What this program inherited, a pipe of its shell or of make, is not marked
	// close-on-exec yet. Old kernels cannot do it: then it is inherited on.
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	child, err := os.StartProcess(argv[0], argv, &os.ProcAttr{
		Dir:   "/",
		Env:   []string{"PATH=" + guestPath, "LANG=C.UTF-8", "HOME=/root"},
		Files: []*os.File{null, log, log},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, err
	}
	p, err := openProcess(child.Pid) // not reaped yet, so it is that one
	_ = child.Release()
	if err != nil {
		return nil, fmt.Errorf("%w; %s", err, r.logTail(id))
	}
	if err := r.reap(id, p.procRef); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// awaitReady returns when podd answers under the incarnation's endpoint.
func (r *Runtime) awaitReady(ctx context.Context, spec sessionapi.Spec, supervisor *process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("podd did not answer within %v", readyTimeout))
	defer cancel()
	socket := r.socket(session.LocalEndpoint(spec.ID, spec.Incarnation))
	rt := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}
	podd := poddapi.NewClient(rt, "")
	tick := time.NewTicker(readyTick)
	defer tick.Stop()
	for {
		err := publish(filepath.Join(r.runDir(spec.ID), "podd.sock"), socket)
		if err == nil {
			if _, err = podd.Health(ctx); err == nil {
				return nil
			}
		}
		if supervisor.ended() {
			return unavailable(errors.New(r.logTail(spec.ID)), "the sandbox ended while it was starting")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for podd: %w; last: %w; %s", context.Cause(ctx), err, r.logTail(spec.ID))
		}
	}
}

// publish gives podd's socket the name under which the edge dials it: a hard
// link in a directory that the guest cannot reach. In its own directory root of
// the guest could put a symlink in the socket's place later, to a socket of the
// host.
func publish(guest, published string) error {
	if _, err := os.Lstat(published); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(published), 0o700); err != nil {
		return err
	}
	if err := os.Link(guest, published); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	fi, err := os.Lstat(published) // link(2) takes a symlink as it is
	if err != nil {
		return err
	}
	if fi.Mode().Type() != fs.ModeSocket {
		return errors.Join(fmt.Errorf("podd's socket is %v", fi.Mode()), os.Remove(published))
	}
	return nil
}

// initOf finds the first bwrap: the child of the supervisor.
func (r *Runtime) initOf(id session.ID, supervisor *process) (*procRef, error) {
	chain, err := openChain(r.mark(id))
	defer closeAll(chain)
	if err != nil {
		return nil, err
	}
	for _, p := range chain {
		if parent, err := statField(p.PID, 4); err == nil && int(parent) == supervisor.PID {
			return &p.procRef, nil
		}
	}
	return nil, unavailable(errors.New(r.logTail(id)), "the sandbox ended while it was starting")
}

// logTail gives the end of what the sandbox' processes said, for an error's
// cause.
func (r *Runtime) logTail(id session.ID) string {
	const most = 2 << 10
	f, err := os.Open(r.logPath(id))
	if err != nil {
		r.log.Debug("no log of the sandbox", zap.String("sandbox", string(id)), zap.Error(err))
		return "no log"
	}
	defer f.Close()
	if fi, err := f.Stat(); err == nil && fi.Size() > most {
		_, _ = f.Seek(-most, io.SeekEnd)
	}
	data, _ := io.ReadAll(io.LimitReader(f, most)) // what can be read
	return "log: " + strings.TrimSpace(string(data))
}
