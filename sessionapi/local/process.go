package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// procRef names a process for good: its pid may be given to another process,
// its pid together with its start time is not.
type procRef struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // in clock ticks since boot
}

// process is a process held by a pidfd. What is signalled or waited for through
// it is that process or nothing.
type process struct {
	procRef
	pidfd *os.File
}

// openProcess holds the process called pid, which may end at any time. It
// reports os.ErrProcessDone if there is none, or only a zombie.
func openProcess(pid int) (*process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil, os.ErrProcessDone
	}
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", pid, err)
	}
	p := &process{procRef{PID: pid}, os.NewFile(uintptr(fd), "pidfd")}
	// Read after the pidfd is there: if the process is still up below, this was
	// its own start time.
	if p.Start, err = startTime(pid); err != nil || p.ended() {
		p.close()
		return nil, os.ErrProcessDone
	}
	return p, nil
}

// reopenProcess holds the very process that ref names.
func reopenProcess(ref procRef) (*process, error) {
	p, err := openProcess(ref.PID)
	if err == nil && p.Start != ref.Start {
		p.close()
		return nil, os.ErrProcessDone
	}
	return p, err
}

func (p *process) close() { p.pidfd.Close() }

func (p *process) kill() error {
	var killErr error
	err := p.control(func(fd int) {
		if killErr = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); errors.Is(killErr, unix.ESRCH) {
			killErr = nil
		}
	})
	return errors.Join(err, killErr)
}

// ended reports whether the process has ended, and reaps it if it is a child
// of this one.
func (p *process) ended() (gone bool) {
	_ = p.control(func(fd int) { gone = ended(fd) })
	return gone
}

// wait returns when the process has ended. One wait at a time.
func (p *process) wait(ctx context.Context) error {
	if err := p.pidfd.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { p.pidfd.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	rc, err := p.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	// A pidfd becomes readable when its process ends: this sleeps in the
	// poller and takes no thread.
	err = rc.Read(func(fd uintptr) bool { return ended(int(fd)) })
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return context.Cause(ctx)
	}
	return err
}

func (p *process) control(f func(fd int)) error {
	rc, err := p.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	return rc.Control(func(fd uintptr) { f(int(fd)) })
}

func ended(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n <= 0 {
			return false
		}
		// ECHILD: another's child, or reaped already.
		_ = unix.Waitid(unix.P_PIDFD, pidfd, nil, unix.WEXITED|unix.WNOHANG, nil)
		return true
	}
}

// startTime reads when a process started.
func startTime(pid int) (uint64, error) { return statField(pid, 22) }

// statField reads a numeric field of /proc/<pid>/stat, as proc(5) counts them,
// from 4 on.
func statField(pid, n int) (uint64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// Field 2, the name in parentheses, may hold anything.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) <= n-3 {
		return 0, fmt.Errorf("process %d: short stat", pid)
	}
	return strconv.ParseUint(fields[n-3], 10, 64)
}

// processesWithArg lists the processes that have arg as one of their arguments.
func processesWithArg(arg string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	needle := []byte("\x00" + arg + "\x00")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// One that ends meanwhile has no command line.
		if cmdline, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")); err == nil && bytes.Contains(cmdline, needle) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// inOurPIDNamespace reports whether pid lives where this process does.
func inOurPIDNamespace(pid int) bool {
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return false
	}
	ours, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && ours == theirs
}

// bootID tells one run of the kernel from the next: start times begin anew
// with each.
func bootID() string {
	data, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // none is the same every time
	return strings.TrimSpace(string(data))
}
