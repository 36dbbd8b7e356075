package main

import (
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// restarts is how often within window a podd that crashed is started anew.
	restarts = 5
	window   = time.Minute
	// farewell is how long what podd left behind may take to end by itself.
	farewell = 2 * time.Second
)

// supervisor keeps podd running and reaps every child there is.
type supervisor struct {
	path string
	args []string
	env  []string
	log  *log.Logger

	pid      int
	crashes  []time.Time        // within window
	passed   map[os.Signal]bool // signals that podd has been given
	stopping bool               // one of them was to end it
}

// run returns podd's exit status once podd is not to be started again.
func (s *supervisor) run() int {
	s.passed = map[os.Signal]bool{}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)              // before podd is there: none is lost
	children := make(chan os.Signal, 1) // one stands for any number
	signal.Notify(children, syscall.SIGCHLD)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		s.log.Printf("become subreaper: %v", err)
	}
	if err := s.start(); err != nil {
		s.log.Print(err)
		return 127
	}
	for {
		select {
		case sig := <-signals:
			s.pass(sig)
			continue
		case <-children:
		}
		status, ended := s.reap()
		for ended && s.again(status) {
			if err := s.start(); err != nil {
				s.log.Print(err)
				continue // it counts as a crash of the same kind
			}
			ended = false
		}
		if ended {
			s.end(children)
			return code(status)
		}
	}
}

// start runs podd with the signals, files and environment of this process.
func (s *supervisor) start() error {
	pid, err := syscall.ForkExec(s.path, append([]string{s.path}, s.args...), &syscall.ProcAttr{
		Env: s.env, Files: []uintptr{0, 1, 2},
	})
	if err != nil {
		return &os.PathError{Op: "start", Path: s.path, Err: err}
	}
	s.pid = pid
	return nil
}

// pass hands a signal on to podd, except those that concern this process only.
func (s *supervisor) pass(sig os.Signal) {
	switch sig {
	case syscall.SIGCHLD,
		syscall.SIGURG, // the Go runtime's own
		syscall.SIGPIPE, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGTSTP:
		return
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP:
		s.stopping = true
	}
	s.passed[sig] = true
	// podd is unreaped, so the number is its own.
	syscall.Kill(s.pid, sig.(syscall.Signal))
}

// reap takes every child that has ended: podd, and orphans. It reports podd's
// status if podd is among them.
func (s *supervisor) reap() (podd syscall.WaitStatus, ended bool) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil || pid <= 0:
			return podd, ended
		case pid == s.pid:
			podd, ended = status, true
			s.pid = 0
		}
	}
}

// again reports whether podd, which has ended so, is to be started anew.
func (s *supervisor) again(status syscall.WaitStatus) bool {
	if s.stopping || status.Exited() && status.ExitStatus() <= 1 || status.Signaled() && s.passed[status.Signal()] {
		return false
	}
	now := time.Now()
	for len(s.crashes) > 0 && now.Sub(s.crashes[0]) > window {
		s.crashes = s.crashes[1:]
	}
	s.crashes = append(s.crashes, now)
	if len(s.crashes) > restarts {
		s.log.Printf("podd ended with status %d, %d times within %v: giving up", code(status), len(s.crashes), window)
		return false
	}
	s.log.Printf("podd ended with status %d: starting it again", code(status))
	return true
}

// end lets everything that is left in the container end by itself, as long as
// it takes no longer than farewell: a browser then closes its profile. The
// kernel kills the rest together with process 1.
func (s *supervisor) end(children <-chan os.Signal) {
	if os.Getpid() != 1 {
		return // "everything" would be the whole machine
	}
	if syscall.Kill(-1, syscall.SIGTERM) != nil {
		return // nobody
	}
	bound := time.NewTimer(farewell)
	defer bound.Stop()
	for {
		s.reap()
		if syscall.Kill(-1, 0) == syscall.ESRCH {
			return
		}
		select {
		case <-children:
		case <-bound.C:
			return
		}
	}
}

// code is the exit status a shell would give.
func code(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
