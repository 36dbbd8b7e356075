package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Interval is how often a wait looks again. There is nothing to listen to
// when a process of somebody else ends or begins to answer.
const Interval = 10 * time.Millisecond

// ErrExited reports that a daemon ended while it was waited for.
var ErrExited = errors.New("the process ended")

// Process is one run of a daemon. Its methods are safe for concurrent use.
type Process struct {
	Pid   int
	start uint64 // in clock ticks since boot: pid and start name a process for good
	child bool   // of this very process, so that it must be reaped
}

// Running is the living process of that pid if its program's name is name: a
// daemon of somebody else's.
func Running(pid int, name string) *Process {
	s, err := readStat(pid)
	if err != nil || s.zombie() || s.name != name {
		return nil
	}
	return &Process{Pid: pid, start: s.start}
}

// Alive reports whether the process still runs. A zombie does not.
func (p *Process) Alive() bool {
	if p.child {
		// Reaping here means that nobody waits in a goroutine for what
		// normally outlives us.
		var status unix.WaitStatus
		if pid, err := unix.Wait4(p.Pid, &status, unix.WNOHANG, nil); err == nil && pid == p.Pid {
			return false
		}
	}
	s, err := readStat(p.Pid)
	return err == nil && s.start == p.start && !s.zombie()
}

// Await polls ready, see [Poll]. It also gives up, with ErrExited, when the
// process ends.
func (p *Process) Await(ctx context.Context, ready func(context.Context) error) error {
	var exited bool
	err := Poll(ctx, func(ctx context.Context) error {
		err := ready(ctx)
		exited = err != nil && !p.Alive()
		if exited {
			return nil
		}
		return err
	})
	if exited {
		return ErrExited
	}
	return err
}

// finalError is an error that no waiting cures.
type finalError struct{ error }

// Unwrap returns what is final.
func (e finalError) Unwrap() error { return e.error }

// Final marks err, from a function that is polled, as one that no waiting
// cures.
func Final(err error) error { return finalError{err} }

// Poll calls f every Interval until it returns nil or a Final error. When ctx
// ends it gives up with the cause and the last error of f.
func Poll(ctx context.Context, f func(context.Context) error) error {
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if final, ok := errors.AsType[finalError](err); ok {
			return final.error
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// End asks the process to end by SIGTERM and, when it has not within grace,
// kills it and all of its session. It returns when all are gone.
func (p *Process) End(ctx context.Context, grace time.Duration) error {
	if grace > 0 && p.Alive() {
		if err := unix.Kill(p.Pid, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
		soft, cancel := context.WithTimeout(ctx, grace)
		_ = p.AwaitEnd(soft)
		cancel()
	}
	return p.Kill(ctx)
}

// Kill ends the process and what shares its session by SIGKILL and returns
// when all are gone. Members may outlive their leader, so a dead leader is no
// reason to stop.
func (p *Process) Kill(ctx context.Context) error {
	err := Poll(ctx, func(context.Context) error {
		p.Alive() // reaps
		left := p.session()
		if len(left) == 0 {
			return nil
		}
		for _, pid := range left {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return Final(err)
			}
		}
		return fmt.Errorf("%d processes left", len(left))
	})
	if err != nil {
		return fmt.Errorf("kill %d: %w", p.Pid, err)
	}
	return nil
}

// AwaitEnd returns when the process and its session are gone.
func (p *Process) AwaitEnd(ctx context.Context) error {
	return Poll(ctx, func(context.Context) error {
		if p.Alive() || len(p.session()) > 0 {
			return errors.New("still running")
		}
		return nil
	})
}

// session lists the living members of the process's session. The kernel gives a
// pid to nobody else while a session is named by it; when it has been given
// away, the session has no members left.
func (p *Process) session() []int {
	if s, err := readStat(p.Pid); err == nil && s.start != p.start {
		return nil
	}
	var pids []int
	eachProcess(func(pid int, s stat) {
		if s.session == p.Pid && !s.zombie() {
			pids = append(pids, pid)
		}
	})
	return pids
}

// stat is what /proc/<pid>/stat tells.
type stat struct {
	name    string // of the program, at most 15 bytes
	state   byte
	session int
	start   uint64
}

func (s stat) zombie() bool { return s.state == 'Z' || s.state == 'X' }

func readStat(pid int) (stat, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	// The second field is the program's name in brackets and may hold anything.
	line := string(b)
	from, to := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if from < 0 || to < from {
		return stat{}, fmt.Errorf("/proc/%d/stat: no name", pid)
	}
	name := line[from+1 : to]
	f := strings.Fields(line[to+1:])
	if len(f) < 20 {
		return stat{}, fmt.Errorf("/proc/%d/stat: too few fields", pid)
	}
	session, err1 := strconv.Atoi(f[3])
	start, err2 := strconv.ParseUint(f[19], 10, 64)
	return stat{name: name, state: f[0][0], session: session, start: start}, errors.Join(err1, err2)
}

// eachProcess calls f for all processes there are.
func eachProcess(f func(pid int, s stat)) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, err := readStat(pid); err == nil {
			f(pid, s)
		}
	}
}
