package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/cubeplexai/cubepod/internal/session"
)

// stopTimeout bounds how long killed processes may take to go. Only one that
// hangs in the kernel takes longer than milliseconds.
const stopTimeout = 30 * time.Second

// Stop implements sessionapi.Runtime.
func (r *Runtime) Stop(ctx context.Context, id session.ID) error {
	release, err := r.locks.Acquire(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	if err := r.stop(ctx, id); err != nil {
		return fmt.Errorf("stop %s: %w", id, err)
	}
	return nil
}

// Delete implements sessionapi.Runtime.
func (r *Runtime) Delete(ctx context.Context, id session.ID) error {
	release, err := r.locks.Acquire(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	if err := r.stop(ctx, id); err != nil {
		return fmt.Errorf("delete %s: %w", id, err)
	}
	if _, ok := session.ParseID(string(id)); !ok {
		return nil // "" and ".." would name more than a sandbox
	}
	// RemoveAll does not follow the symlinks a guest may have left.
	if err := os.RemoveAll(r.dir(id)); err != nil {
		return fmt.Errorf("delete %s: %w", id, err)
	}
	return nil
}

// stop ends the processes of id, whatever incarnation they are of and whoever
// started them, and removes what belongs to a running sandbox. The caller holds
// the lock.
func (r *Runtime) stop(ctx context.Context, id session.ID) error {
	st, err := r.readState(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, stopTimeout, fmt.Errorf("processes of %s are still there %v after SIGKILL", id, stopTimeout))
	defer cancel()
	if err := r.kill(ctx, id, st); err != nil {
		return err
	}
	for _, dir := range []string{r.runDir(id), filepath.Join(r.dir(id), "etc")} {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	sockets, err := filepath.Glob(filepath.Join(r.SocketDir(), string(id)+"-*")) // an id has no pattern in it
	if err != nil {
		return err
	}
	for _, dir := range sockets {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return r.writeState(id, state{Incarnation: st.Incarnation, Deployment: st.Deployment})
}

// kill ends every process of the sandbox and returns when all are gone. Those
// of its chain are known by their argument; the others are in the PID namespace
// whose init is the first bwrap, and that one is gone only after all of them
// are, whatever they did to hide.
func (r *Runtime) kill(ctx context.Context, id session.ID, st state) error {
	var first *process
	if st.Init != nil && st.Boot == bootID() {
		// In its exit it has no arguments any more.
		p, err := reopenProcess(*st.Init)
		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		first = p
	}
	for {
		chain, err := openChain(r.mark(id))
		if first != nil {
			chain, first = append(chain, first), nil
		}
		if len(chain) == 0 || err != nil {
			closeAll(chain)
			return err
		}
		err = killAll(ctx, chain)
		closeAll(chain)
		if err != nil {
			return err
		}
		// Once more: one of them may have forked before it died.
	}
}

// openChain holds all processes that have mark as an argument.
func openChain(mark string) ([]*process, error) {
	pids, err := processesWithArg(mark)
	var chain []*process
	for _, pid := range pids {
		p, openErr := openProcess(pid)
		if errors.Is(openErr, os.ErrProcessDone) {
			continue
		}
		if openErr != nil {
			return chain, openErr
		}
		chain = append(chain, p)
	}
	return chain, err
}

// killAll signals all before it waits for any: when one ends, the next is
// killed by the kernel and then cannot be found any more.
func killAll(ctx context.Context, chain []*process) error {
	for _, p := range chain {
		if err := p.kill(); err != nil {
			return fmt.Errorf("kill process %d: %w", p.PID, err)
		}
	}
	for _, p := range chain {
		if err := p.wait(ctx); err != nil {
			return fmt.Errorf("wait for process %d: %w", p.PID, err)
		}
	}
	return nil
}

func closeAll(chain []*process) {
	for _, p := range chain {
		p.close()
	}
}
