package command

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"golang.org/x/sys/unix"
)

// argLimit is the longest single argument the kernel takes (MAX_ARG_STRLEN),
// with its NUL.
const argLimit = 128 << 10

// child is a started process and podd's ends of its streams.
type child struct {
	pid, pidfd int
	pumps      []*pump
	stdin      *stdin
}

// files are the descriptors of one spawn: all of them are closed when it goes
// wrong, those of the child in any case.
type files struct{ ours, theirs []int }

func (f *files) close(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// spawn starts the command of r in dir as id. Its output goes to owner's, and
// it is in owner's group.
func (m *Manager) spawn(r poddapi.RunRequest, dir string, id Identity, env []string, owner *Command) (_ *child, err error) {
	var f files
	defer func() {
		f.close(f.theirs)
		if err != nil {
			f.close(f.ours)
		}
	}()
	attr := &syscall.ProcAttr{Dir: dir, Env: env, Sys: &syscall.SysProcAttr{Setsid: true}}
	c := &child{pidfd: -1}
	attr.Sys.PidFD = &c.pidfd
	if m.root {
		attr.Sys.Credential = &syscall.Credential{Uid: id.UID, Gid: id.GID, Groups: id.Groups}
	}

	var fds [3]int // the child's 0, 1 and 2
	var sources []source
	if r.PTY != nil {
		fds, sources, err = f.terminal(*r.PTY, id, owner.out)
		attr.Sys.Setctty = true // of the child's descriptor 0
	} else {
		fds, sources, err = f.pipes(m.null, r, owner.out, owner.stdout, owner.stderr)
	}
	if err != nil {
		return nil, noProcess(err)
	}
	input := -1
	if r.PTY == nil && (r.Stdin != nil || r.StdinOpen) {
		p, err := f.pipe()
		if err != nil {
			return nil, noProcess(err)
		}
		fds[0], input = p[0], p[1]
	}
	if m.root && id.UID != 0 {
		for i, fd := range fds {
			if fd != m.null && !slices.Contains(fds[:i], fd) { // so that the command can open its /dev/stdin, stdout and stderr
				unix.Fchown(fd, int(id.UID), -1) // it has the open pipe in any case
			}
		}
	}
	attr.Files = []uintptr{uintptr(fds[0]), uintptr(fds[1]), uintptr(fds[2])}

	script := r.Command
	if len(script) >= argLimit {
		fd, err := scriptFile(script)
		if err != nil {
			return nil, noProcess(err)
		}
		f.theirs = append(f.theirs, fd)
		attr.Files = append(attr.Files, uintptr(fd))
		script = ". /proc/self/fd/3"
	}
	shell := m.shell()
	if c.pid, err = m.fork(shell, []string{shell, "-c", script}, attr, owner); err != nil {
		return nil, spawnError(err, shell, dir, id)
	}
	for _, s := range sources {
		c.pumps = append(c.pumps, newPump(s.fd, s.to))
	}
	switch {
	case r.PTY != nil:
		c.stdin = &stdin{file: c.pumps[0].file, terminal: true}
	case input >= 0:
		c.stdin = &stdin{file: os.NewFile(uintptr(input), "stdin")}
	}
	return c, nil
}

// source is podd's end of a stream, and where its bytes go.
type source struct {
	fd int
	to interface{ Write([]byte) (int, error) }
}

// pipe makes a pipe whose first end is the child's, when it reads.
func (f *files) pipe() ([2]int, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return p, err
	}
	f.theirs, f.ours = append(f.theirs, p[0]), append(f.ours, p[1])
	return p, unix.SetNonblock(p[1], true)
}

// output makes a pipe whose second end is the child's. Only podd's end is
// non-blocking: the other is shared with programs that expect to block.
func (f *files) output() ([2]int, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return p, err
	}
	f.theirs, f.ours = append(f.theirs, p[1]), append(f.ours, p[0])
	return p, unix.SetNonblock(p[0], true)
}

func (f *files) pipes(null int, r poddapi.RunRequest, out, stdout, stderr *output) ([3]int, []source, error) {
	p, err := f.output()
	if err != nil {
		return [3]int{}, nil, err
	}
	if !r.Separate {
		return [3]int{null, p[1], p[1]}, []source{{p[0], out}}, nil
	}
	q, err := f.output()
	if err != nil {
		return [3]int{}, nil, err
	}
	return [3]int{null, p[1], q[1]}, []source{{p[0], both{out, stdout}}, {q[0], both{out, stderr}}}, nil
}

func (f *files) terminal(size poddapi.Size, id Identity, out *output) ([3]int, []source, error) {
	control, command, err := openTerminal(size, id)
	if err != nil {
		return [3]int{}, nil, err
	}
	f.theirs, f.ours = append(f.theirs, command), append(f.ours, control)
	return [3]int{command, command, command}, []source{{control, out}}, nil
}

// both writes to the combined output and to one stream's own.
type both [2]*output

func (b both) Write(p []byte) (int, error) {
	b[0].Write(p)
	return b[1].Write(p)
}

// scriptFile holds a script that is too long for an argument. Whoever the
// command runs as may read it, nobody may change it.
func scriptFile(script string) (int, error) {
	fd, err := unix.MemfdCreate("command", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("hold script: %w", err)
	}
	rest := []byte(script)
	for len(rest) > 0 && err == nil {
		var n int
		n, err = unix.Write(fd, rest)
		rest = rest[max(n, 0):]
	}
	if err == nil {
		err = unix.Fchmod(fd, 0o444)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("hold script: %w", err)
	}
	return fd, nil
}

// shell is what runs commands: bash, where there is one.
func (m *Manager) shell() string {
	if unix.Access("/bin/bash", unix.X_OK) == nil {
		return "/bin/bash"
	}
	return "/bin/sh"
}

// spawnError tells the caller what ForkExec's one errno was about.
func spawnError(err error, shell, dir string, id Identity) error {
	switch {
	case errors.Is(err, syscall.E2BIG):
		return apierror.Wrap(err, apierror.TooLarge, "too_large", "the command and its environment are too long for the kernel")
	case errors.Is(err, syscall.EPERM):
		return apierror.Wrap(err, apierror.Forbidden, "user_refused", "podd may not run commands as %d:%d", id.UID, id.GID)
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EACCES),
		errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENAMETOOLONG):
		if unix.Access(shell, unix.X_OK) != nil {
			return apierror.Wrap(err, apierror.Unsupported, "no_shell", "the sandbox has no shell")
		}
		return apierror.Wrap(err, apierror.Invalid, "workdir_invalid", "workdir %q is no directory that user %d can enter", dir, id.UID)
	}
	return noProcess(err)
}

// noProcess is the error of a machine that has no room for one more process.
func noProcess(err error) error {
	for _, errno := range []syscall.Errno{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, errno) {
			e := apierror.Wrap(err, apierror.Unavailable, "no_process", "the sandbox has no room for another process")
			e.RetryAfter = time.Second
			return e
		}
	}
	return fmt.Errorf("start command: %w", err)
}
