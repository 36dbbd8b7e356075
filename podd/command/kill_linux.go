package command

import (
	"bytes"
	"os"
	"syscall"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/podd/procfs"
	"golang.org/x/sys/unix"
)

// killBound is how long a kill waits for processes that do not go, such as
// those stuck in the kernel.
const killBound = 10 * time.Second

// Kill ends the command's whole tree and returns when it is gone. It reports
// whether the command was running. What a finished command left behind goes
// too.
//
// Members of the tree are the processes of the leader's session, those that
// carry the command's marker in their environment, and the descendants of
// either. Where the command has a control group, so is everything in it except
// the desktop's daemons, which are meant to outlive the command that started
// them. A session is known by its number only while the leader is unreaped,
// and every signal goes to a process that was looked at under its pidfd, so no
// stranger who was given an old number is ever hit.
func (c *Command) Kill() (wasRunning bool, err error) { return c.end(false) }

// expire is Kill for a command whose time is up.
func (c *Command) expire() {
	if _, err := c.end(true); err != nil {
		c.m.log.Printf("command %s: timeout: %v", c.ID(), err)
	}
}

func (c *Command) end(timedOut bool) (wasRunning bool, err error) {
	c.killing.Lock()
	defer c.killing.Unlock()
	c.mu.Lock()
	if wasRunning = c.status.Running; wasRunning {
		c.kill, c.forced = make(chan struct{}), true
		c.status.TimedOut = c.status.TimedOut || timedOut
	}
	c.mu.Unlock()
	if timedOut && !wasRunning {
		return false, nil
	}
	gone := c.killTree(time.Now().Add(killBound))
	if wasRunning {
		c.mu.Lock()
		close(c.kill)
		c.kill = nil
		c.mu.Unlock()
	}
	if !gone {
		return wasRunning, apierror.New(apierror.Timeout, "kill_timeout", "a process of the command does not end")
	}
	if wasRunning {
		<-c.done // the leader is a zombie by now
	}
	return wasRunning, nil
}

// target names one process: a number and when it began.
type target struct {
	pid   int
	start uint64
}

// killTree kills until a look at all processes finds no member, which catches
// what was forked between two looks. It reports whether it got there in time.
func (c *Command) killTree(deadline time.Time) bool {
	// Once a member, always one: a child whose parents died is podd's child
	// and shows no descent any more.
	known := map[target]bool{}
	for {
		members, spared := c.members(known)
		if len(members) == 0 {
			return true
		}
		if !time.Now().Before(deadline) {
			return false
		}
		c.signal(unix.SIGKILL) // the group at once, which a fork cannot outrun
		if c.group != nil && !spared {
			c.group.Kill() // likewise; what it cannot do is done below
		}
		killAll(members, deadline)
	}
}

// members looks for living members; known are those of earlier looks. spared
// reports whether something in the command's control group is to live.
func (c *Command) members(known map[target]bool) (members []target, spared bool) {
	all, err := procfs.All()
	if err != nil {
		return nil, false // no /proc: the group is all that is known
	}
	grouped := map[int]bool{}
	if c.group != nil {
		for _, pid := range c.group.PIDs() {
			grouped[pid] = true
		}
	}
	c.mu.Lock()
	session := c.status.PID
	if c.reaped {
		session = -1
	}
	c.mu.Unlock()
	mark := []byte("\x00" + marker + "=" + c.mark() + "\x00")
	children := map[int][]procfs.Process{}
	var queue, found []procfs.Process
	self := os.Getpid()
	for _, p := range all {
		if p.PID == self {
			continue
		}
		children[p.Parent] = append(children[p.Parent], p)
		if known[target{p.PID, p.Start}] || p.Session == session || carries(p.PID, mark) || grouped[p.PID] && !isDaemon(p) {
			queue = append(queue, p)
		}
	}
	seen := map[int]bool{}
	for ; len(queue) > 0; queue = queue[1:] {
		p := queue[0]
		if seen[p.PID] {
			continue
		}
		seen[p.PID] = true
		queue = append(queue, children[p.PID]...)
		found = append(found, p)
	}
	for _, p := range found {
		t := target{p.PID, p.Start}
		known[t] = true
		delete(grouped, p.PID)
		if !p.Zombie() {
			members = append(members, t)
		}
	}
	return members, len(grouped) > 0
}

// daemonMark is the variable by which the desktop's supervisor knows its
// daemons. A process that takes it escapes kills by group, as it can without
// groups by other means.
var daemonMark = []byte("\x00CUBEPOD_DAEMON=")

// isDaemon reports whether p is one of the desktop's daemons or in the session
// of one.
func isDaemon(p procfs.Process) bool {
	return carries(p.PID, daemonMark) || carries(p.Session, daemonMark)
}

func carries(pid int, mark []byte) bool {
	env, err := procfs.Environ(pid)
	return err == nil && bytes.Contains(append([]byte{0}, env...), mark)
}

// killAll kills every target and waits, at most until deadline, for all of
// them to end.
func killAll(targets []target, deadline time.Time) {
	var dying []int
	for _, t := range targets {
		fd, err := unix.PidfdOpen(t.pid, 0)
		switch {
		case err == unix.ENOSYS && t.same():
			syscall.Kill(t.pid, unix.SIGKILL)
		case err == nil && t.same(): // looked at while fd holds on to whoever has the number
			unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			dying = append(dying, fd)
		case err == nil:
			unix.Close(fd)
		}
	}
	for _, fd := range dying {
		awaitPidfd(fd, deadline)
		unix.Close(fd)
	}
}

func awaitPidfd(fd int, deadline time.Time) {
	for {
		left := max(0, time.Until(deadline))
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, int(left.Milliseconds())); err != unix.EINTR {
			return
		}
	}
}

// same reports whether t's number still names the process that was looked at.
func (t target) same() bool {
	p, err := procfs.Read(t.pid)
	return err == nil && p.Start == t.start
}
