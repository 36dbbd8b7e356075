package local

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/cubeplexai/cubepod/internal/apierror"
)

// probeTimeout bounds one probe of the host. A probe takes milliseconds.
const probeTimeout = 20 * time.Second

// supervision is how a sandbox is started on this host: by a program that makes
// a PID namespace, runs bwrap in it, and ends with it.
type supervision struct {
	argv []string // up to and with bwrap's path
	// offline says that argv leaves the network namespace to bubblewrap.
	offline bool
}

// dnsForward is the address at which pasta stands in for the host's resolver.
const dnsForward = "169.254.1.1"

// Check reports apierror.Unavailable, code "runtime_unavailable", with what is
// missing and how to get it, if this machine cannot run sandboxes.
func (r *Runtime) Check(ctx context.Context) error {
	_, err := r.probe(ctx)
	return err
}

// probe finds the supervision that works here. It is tried out, not guessed: a
// container may forbid namespaces, and pasta ends when the host has no route.
// The first with a network is kept; without one the next call looks again.
func (r *Runtime) probe(ctx context.Context) (supervision, error) {
	r.hostMu.Lock()
	defer r.hostMu.Unlock()
	if r.host.argv != nil && (r.opts.Offline || !r.host.offline) {
		return r.host, nil
	}
	if os.Geteuid() != 0 {
		return supervision{}, unavailable(nil, "the local runtime needs root: start the API as root, or use another runtime")
	}
	paths := make(map[string]string)
	for _, p := range []struct{ program, pkg string }{{"bwrap", "bubblewrap"}, {"unshare", "util-linux"}} {
		path, err := exec.LookPath(p.program)
		if err != nil {
			return supervision{}, unavailable(err, "the local runtime needs the program %s: install the package %s", p.program, p.pkg)
		}
		paths[p.program] = path
	}
	if podd := filepath.Join(r.opts.GuestDir, "guest", "podd"); !executable(podd) {
		return supervision{}, unavailable(nil, "the local runtime finds no podd at %s: run make build", podd)
	}

	var noNetwork error
	if !r.opts.Offline {
		online, err := pasta(ctx, paths["bwrap"])
		if err == nil {
			err = tryOut(ctx, online)
		}
		if err == nil {
			r.host = online
			return online, nil
		}
		noNetwork = err
		if r.host.argv != nil {
			return r.host, nil // as before
		}
	}
	alone := supervision{argv: []string{paths["unshare"], "--pid", "--fork", "--", paths["bwrap"]}, offline: true}
	if err := tryOut(ctx, alone); err != nil {
		if ctx.Err() != nil {
			return supervision{}, context.Cause(ctx)
		}
		return supervision{}, unavailable(err, "this machine does not let bubblewrap make namespaces: the local runtime needs CAP_SYS_ADMIN (a container needs --privileged)")
	}
	if noNetwork != nil {
		r.log.Warn("sandboxes are offline: pasta does not work here; it is in the package passt and needs a default route", zap.Error(noNetwork))
	}
	r.host = alone
	return alone, nil
}

// pasta gives the command that puts a sandbox into a network namespace with a
// way out and none in.
func pasta(ctx context.Context, bwrap string) (supervision, error) {
	path, err := exec.LookPath("pasta")
	if err != nil {
		return supervision{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	// Some releases print their help with a status other than 0.
	help, _ := exec.CommandContext(ctx, path, "--help").CombinedOutput()
	argv := []string{path,
		"--quiet", "--foreground",
		"--config-net",
		// Without a user namespace of its own pasta stays root: uid 1000 of the
		// guest has to be uid 1000.
		"--netns-only", "--runas", "0",
		// No way to the host's loopback: not by the gateway's address, not by
		// a forwarded port, in either direction.
		"--no-map-gw",
		"--tcp-ports", "none", "--udp-ports", "none", "--tcp-ns", "none", "--udp-ns", "none",
		"--dns-forward", dnsForward,
	}
	for _, flag := range []string{"--map-host-loopback", "--map-guest-addr"} { // of 2024 and later
		if bytes.Contains(help, []byte(flag)) {
			argv = append(argv, flag, "none")
		}
	}
	return supervision{argv: append(argv, "--", bwrap)}, nil
}

// tryOut runs true(1) the way a sandbox would be run.
func tryOut(ctx context.Context, s supervision) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	argv := slices.Concat(s.argv, namespaceArgs(s.offline))
	argv = append(argv, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--", "true")
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = time.Second // a grandchild may hold the pipe a moment longer
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("try %s: %w: %s", filepath.Base(argv[0]), err, cmp.Or(strings.TrimSpace(string(out)), "no output"))
	}
	return nil
}

func executable(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0
}

func unavailable(err error, format string, args ...any) error {
	return apierror.Wrap(err, apierror.Unavailable, "runtime_unavailable", format, args...)
}
