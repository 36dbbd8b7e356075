package terminal

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

const (
	// readSize is what is read from the shell at once.
	readSize = 32 << 10
	// hangupGrace is how long a shell has to end after its terminal is gone.
	hangupGrace = 2 * time.Second
)

// shell is one shell on its own terminal.
type shell struct {
	cmd    *exec.Cmd
	tty    *os.File
	input  chan []byte   // taken by one goroutine, so that pastes never mix
	exited chan struct{} // closed when cmd was waited for
	gone   chan struct{} // closed when another may be started
}

// startShell runs cmd as the leader of a session on a new terminal.
func startShell(cmd *exec.Cmd, size *pty.Winsize) (*shell, error) {
	master, err := pty.StartWithSize(cmd, size)
	if err != nil {
		return nil, err
	}
	tty, err := pollable(master)
	if err != nil {
		master.Close() // hangs up on the shell
		_ = cmd.Wait()
		return nil, err
	}
	return &shell{
		cmd: cmd, tty: tty, input: make(chan []byte, 64),
		exited: make(chan struct{}), gone: make(chan struct{}),
	}, nil
}

// pollable replaces f, which package pty has made blocking, by a file whose
// reads and writes end with Close and with a deadline.
func pollable(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate the terminal: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make the terminal pollable: %w", err)
	}
	name := f.Name()
	f.Close()
	return os.NewFile(uintptr(fd), name), nil
}

// run gives everything the shell prints to out, and returns when the shell has
// exited and its last byte was given. It ends the shell when ctx does.
func (s *shell) run(ctx context.Context, out func([]byte)) {
	var own sync.WaitGroup
	own.Go(func() {
		s.cmd.Wait()
		close(s.exited)
		// What the shell left in the background may hold the terminal open
		// for ever. It gets the hang-up it would get anywhere else.
		s.tty.SetReadDeadline(time.Unix(1, 0))
	})
	own.Go(s.feed)
	own.Go(func() {
		select {
		case <-ctx.Done():
			s.hangUp()
		case <-s.exited:
		}
	})
	buf := make([]byte, readSize)
	for {
		n, err := s.tty.Read(buf)
		if n > 0 {
			out(buf[:n])
		}
		if err != nil {
			break // EIO: nobody has the terminal open any more
		}
	}
	<-s.exited
	s.drain(buf, out)
	s.tty.Close()
	own.Wait()
}

// drain gives out what was printed before the exit and not read yet. The
// terminal does not block, so this ends when it is empty.
func (s *shell) drain(buf []byte, out func([]byte)) {
	for {
		n := 0
		// Not Read, which would fail by the deadline that has passed.
		s.control(func(fd int) { n, _ = unix.Read(fd, buf) })
		if n <= 0 {
			return
		}
		out(buf[:n])
	}
}

// feed types the input. A program that does not read blocks it, then send, and
// so the page: nothing is lost and nothing is piled up.
func (s *shell) feed() {
	for {
		select {
		case p := <-s.input:
			if _, err := s.tty.Write(p); err != nil {
				return
			}
		case <-s.exited:
			return
		}
	}
}

// send queues input; false means that the shell has exited.
func (s *shell) send(ctx context.Context, p []byte) bool {
	select {
	case s.input <- p:
		return true
	case <-s.exited:
		return false
	case <-ctx.Done():
		return true
	}
}

func (s *shell) resize(size *pty.Winsize) {
	// Not pty.Setsize, which would make the terminal blocking again. A shell
	// that has just exited needs no size.
	s.control(func(fd int) {
		_ = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	})
}

// redraw asks the program in the foreground to paint its screen, as after a
// change of size.
func (s *shell) redraw() {
	s.control(func(fd int) {
		if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err == nil && group > 1 {
			_ = unix.Kill(-group, unix.SIGWINCH)
		}
	})
}

// control lends the terminal's descriptor, unless it is closed.
func (s *shell) control(f func(fd int)) {
	if conn, err := s.tty.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { f(int(fd)) })
	}
}

// hangUp takes the terminal away, as closing a terminal's window does, and
// kills a shell that stays.
func (s *shell) hangUp() {
	s.tty.Close()
	_ = s.cmd.Process.Signal(syscall.SIGHUP)
	late := time.NewTimer(hangupGrace)
	defer late.Stop()
	select {
	case <-s.exited:
	case <-late.C:
		_ = s.cmd.Process.Kill()
	}
}

// status is how the shell ended, in words.
func (s *shell) status() string {
	if ws, ok := s.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return "was ended by signal " + unix.SignalName(ws.Signal())
	}
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		return "exited with code " + strconv.Itoa(code)
	}
	return "exited"
}
