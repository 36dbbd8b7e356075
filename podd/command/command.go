package command

import (
	"context"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/podd/cgroup"
	"golang.org/x/sys/unix"
)

// Command is one command, running or finished. Its leader is the shell that
// podd started, in a session of its own. A command is finished when its leader
// has ended and everything the leader wrote is in the output; what it left in
// the background may write on.
type Command struct {
	m      *Manager
	number uint64
	key    string // idempotency key
	sum    string // of the request that had it

	out            *output
	stdout, stderr *output // nil unless they were asked for
	pumps          []*pump
	stdin          *stdin // nil for /dev/null

	group *cgroup.Group // of all that the command starts; nil without groups

	done chan struct{} // closed when finished

	over time.Time // when it was finished; guarded by m.mu, as is the next
	long int64     // what its long output then had on the disk

	killing sync.Mutex // held while one caller kills the tree

	mu        sync.Mutex // guards the fields below
	status    poddapi.Status
	reaped    bool          // the leader's number is no longer its own
	kill      chan struct{} // closed when the kill under way is over; nil when none is
	forced    bool          // podd itself sent SIGKILL
	timer     *time.Timer
	shelf     shelf // of its latest record
	forgotten bool

	recording sync.Mutex // held while a record is written; guards the field below
	final     bool       // the last record there will be is written
}

// ID is the command's name, unique in the sandbox's life.
func (c *Command) ID() string { return c.status.ID }

// Done is closed when the command is finished.
func (c *Command) Done() <-chan struct{} { return c.done }

// Status tells where the command stands.
func (c *Command) Status() poddapi.Status {
	c.mu.Lock()
	s := c.status
	c.mu.Unlock()
	s.Cursor, s.Truncated = c.out.size(), c.out.truncated()
	return s
}

// Read gives at most limit bytes of the output from offset at on, and the
// offset of the first of them, which is later when earlier ones are gone.
// Past the end it gives none, at the end's offset.
func (c *Command) Read(at, limit int64) ([]byte, int64, error) { return c.out.read(at, limit) }

// Separate gives the beginnings of the two streams, when they were asked for.
func (c *Command) Separate(limit int64) (stdout, stderr []byte, ok bool) {
	if c.stdout == nil {
		return nil, nil, false
	}
	stdout, _, _ = c.stdout.read(0, limit)
	stderr, _, _ = c.stderr.read(0, limit)
	return stdout, stderr, true
}

// Wait returns once there is output after offset at, the command is finished,
// or ctx is done.
func (c *Command) Wait(ctx context.Context, at int64) { c.out.wait(ctx, at, c.done) }

// Signal sends sig to the leader's process group.
func (c *Command) Signal(name string) error {
	sig := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG"))
	if sig == 0 {
		return apierror.New(apierror.Invalid, "invalid_signal", "there is no signal %q", name)
	}
	if !c.Running() || c.signal(sig) != nil {
		return notRunning()
	}
	return nil
}

// signal reaches the leader's group, as long as the group's number is its own.
func (c *Command) signal(sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reaped {
		return syscall.ESRCH
	}
	return syscall.Kill(-c.status.PID, sig)
}

// Resize changes the size of the command's terminal.
func (c *Command) Resize(size poddapi.Size) error {
	if c.stdin == nil || !c.stdin.terminal {
		return apierror.New(apierror.Conflict, "no_terminal", "the command has no terminal")
	}
	conn, err := c.stdin.file.SyscallConn()
	if err != nil {
		return notRunning()
	}
	var sizeErr error
	if err := conn.Control(func(fd uintptr) { sizeErr = resize(int(fd), size) }); err != nil {
		return notRunning()
	}
	return sizeErr
}

// Input gives the command r, and the end of its input when eof is set.
func (c *Command) Input(ctx context.Context, r io.Reader, eof bool) error {
	if c.stdin == nil {
		return apierror.New(apierror.Conflict, "stdin_closed", "the command's stdin is /dev/null; start it with stdin_open or a pty")
	}
	return c.stdin.copy(ctx, r, eof)
}

// Running reports whether the leader runs.
func (c *Command) Running() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// quiet reports whether the command is finished and no process can write to
// its output any more.
func (c *Command) quiet() bool {
	return !c.Running() && c.silent()
}

// silent reports whether no process can write to the output any more.
func (c *Command) silent() bool {
	for _, p := range c.pumps {
		if !p.over() {
			return false
		}
	}
	return true
}

// released reports whether the leader's number is given up.
func (c *Command) released() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reaped
}

func notRunning() error {
	return apierror.New(apierror.Conflict, "not_running", "the command does not run")
}

// tend owns the leader: it waits for its end, makes the result known, and then
// for the stragglers.
func (c *Command) tend(pidfd int) {
	info, err := awaitExit(c.status.PID, pidfd)
	for _, p := range c.pumps {
		p.drain() // the leader's last bytes come before its end is known
	}
	c.finish(info, err)
	c.m.finished(c)
	for _, p := range c.pumps {
		<-p.ended
	}
	c.m.releaseHeld()
	c.m.keep(c)
}

func (c *Command) finish(info siginfo, err error) {
	c.mu.Lock()
	for c.kill != nil { // the answer to a kill or a timeout waits for the whole tree
		over := c.kill
		c.mu.Unlock()
		<-over
		c.mu.Lock()
	}
	now := time.Now().UTC()
	c.status.Running, c.status.EndedAt = false, &now
	switch {
	case err != nil: // it was not ours to wait for: say that we do not know
		c.m.log.Printf("command %s: wait: %v", c.status.ID, err)
	case info.code == exited:
		c.status.ExitCode = ptr(int(info.status))
	default:
		c.status.ExitCode = ptr(128 + int(info.status))
		c.status.Signal = unix.SignalName(syscall.Signal(info.status))
	}
	c.status.OOMKilled = c.oomKilled()
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	if c.stdin != nil {
		c.stdin.close()
	}
	c.release()
	close(c.done)
}

func ptr[T any](v T) *T { return &v }

// release reaps an ended leader unless something of its session may be left:
// as long as it is unreaped, its number names this session and no other. It
// reports whether the leader is reaped now.
func (c *Command) release() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reaped && !c.status.Running && c.silent() && !groupHasChildren(c.status.PID) {
		reap(c.status.PID)
		c.reaped = true
		c.removeGroup()
	}
	return c.reaped
}
