// Package daemon starts long-lived processes that outlive their starter, and
// finds them again.
//
// A daemon is known by a pid file that holds its pid and start time, so that a
// pid the kernel has given to somebody else is never taken for it, and by a
// marker in its environment, so that it is found even when the starter died
// before the pid file was written. Daemons are not watched: whoever wants to
// know looks.
package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// marker is the environment variable that names a daemon: its pid file's path.
const marker = "CUBEPOD_DAEMON="

// Spec says how to run a daemon.
type Spec struct {
	Name string   // of the pid file
	Log  string   // name of the log file, without ".log"
	Args []string // Args[0] is the program's path
	Env  []string // all of the environment but the marker
	Dir  string

	// OpenFiles limits the daemon's open files; 0 leaves the limit alone.
	OpenFiles uint64
}

// Dir is the directory of pid files and logs.
type Dir string

// Start runs a daemon: a session of its own, nothing on standard input,
// output on its log, no other file of ours.
func (d Dir) Start(s Spec) (*Process, error) {
	log, err := d.openLog(s.Log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	p, err := os.StartProcess(s.Args[0], s.Args, &os.ProcAttr{
		Dir:   s.Dir,
		Env:   append(s.Env, marker+d.pidFile(s.Name)),
		Files: []*os.File{null, log, log},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Name, err)
	}
	pid := p.Pid
	p.Release() // the child is reaped by pid, see Process.Alive
	if s.OpenFiles > 0 {
		limit := unix.Rlimit{Cur: s.OpenFiles, Max: s.OpenFiles}
		// One that is dead already has no limits; Alive will tell.
		_ = unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil)
	}
	stat, err := readStat(pid)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Name, err)
	}
	proc := &Process{Pid: pid, start: stat.start, child: true}
	if err := d.remember(s.Name, proc); err != nil {
		return nil, errors.Join(err, unix.Kill(-pid, unix.SIGKILL))
	}
	return proc, nil
}

func (d Dir) pidFile(name string) string { return filepath.Join(string(d), name+".pid") }

// remember writes name's pid file.
func (d Dir) remember(name string, p *Process) error {
	return ReplaceFile(d.pidFile(name), fmt.Appendf(nil, "%d\n%d\n", p.Pid, p.start), 0o644)
}

// Forget removes name's pid file, or whatever has its name.
func (d Dir) Forget(name string) error { return os.RemoveAll(d.pidFile(name)) }

// Find looks for the daemons of these names and returns those that live. The
// pid file decides; a daemon without one is looked for among all processes.
func (d Dir) Find(names ...string) map[string]*Process {
	found := make(map[string]*Process, len(names))
	var lost []string
	for _, name := range names {
		if p := d.fromFile(name); p != nil && p.Alive() {
			found[name] = p
		} else {
			lost = append(lost, name)
		}
	}
	if len(lost) > 0 {
		d.search(lost, found)
	}
	return found
}

// fromFile reads name's pid file; one that makes no sense is as good as none.
func (d Dir) fromFile(name string) *Process {
	b, err := ReadFile(d.pidFile(name))
	if err != nil {
		return nil
	}
	f := strings.Fields(string(b))
	if len(f) != 2 {
		return nil
	}
	pid, err1 := strconv.Atoi(f[0])
	start, err2 := strconv.ParseUint(f[1], 10, 64)
	if err1 != nil || err2 != nil || pid <= 1 {
		return nil
	}
	return &Process{Pid: pid, start: start}
}

// search adds to found the session leaders that carry the marker of a name.
func (d Dir) search(names []string, found map[string]*Process) {
	eachProcess(func(pid int, s stat) {
		if s.session != pid || s.zombie() {
			return
		}
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			return // another user's, or gone
		}
		for _, name := range names {
			if hasEntry(env, marker+d.pidFile(name)) {
				found[name] = &Process{Pid: pid, start: s.start}
			}
		}
	})
}

// hasEntry reports whether a block of NUL-terminated strings holds entry.
func hasEntry(block []byte, entry string) bool {
	for e := range strings.SplitSeq(string(block), "\x00") {
		if e == entry {
			return true
		}
	}
	return false
}
