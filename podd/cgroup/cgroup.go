// Package cgroup gives each command a control group of its own, where podd may
// make one: in a writable cgroup v2 hierarchy. Everything a command starts is
// in its group, whatever it does about sessions, parents and environment.
// Which of that is to be killed is decided by the caller.
package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Tree is the group that holds the commands' groups.
type Tree struct{ dir string }

// Open takes or makes the group name below podd's own. It is an error when
// podd may make none, or the kernel cannot kill by group (before 5.14).
func Open(name string) (*Tree, error) {
	own, err := own("cgroup2", "")
	if err != nil {
		return nil, err
	}
	delegateMemory(own)
	t := &Tree{dir: filepath.Join(own, name)}
	if err := os.Mkdir(t.dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := t.usable(); err != nil {
		t.Close()
		return nil, err
	}
	os.WriteFile(filepath.Join(t.dir, "cgroup.subtree_control"), []byte("+memory"), 0) // where there is memory to be had
	return t, nil
}

func (t *Tree) usable() error {
	if kind, err := os.ReadFile(filepath.Join(t.dir, "cgroup.type")); err != nil || string(kind) != "domain\n" {
		return fmt.Errorf("%s is no domain: %q, %w", t.dir, kind, err)
	}
	return unix.Access(filepath.Join(t.dir, "cgroup.kill"), unix.W_OK)
}

// delegateMemory lets the groups below own count their memory. The kernel
// wants own to have no processes then, so they move into a group beside the
// commands. That is done only where own is the root of a namespace, a
// container's, and all in it is the sandbox's; on a host the processes beside
// podd are not its to move.
func delegateMemory(own string) {
	if _, err := os.Stat(filepath.Join(own, "cgroup.type")); err != nil {
		return // the machine's own root
	}
	if rel, err := membership(""); err != nil || rel != "/" {
		return
	}
	control := filepath.Join(own, "cgroup.subtree_control")
	if have, err := os.ReadFile(filepath.Join(own, "cgroup.controllers")); err != nil || !bytes.Contains(have, []byte("memory")) {
		return
	}
	leaf := filepath.Join(own, "podd")
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return
	}
	for _, pid := range pids(own) {
		// One that has ended meanwhile needs no place.
		os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
	}
	os.WriteFile(control, []byte("+memory"), 0)
}

// New makes the group of a command.
func (t *Tree) New(name string) (*Group, error) {
	g := t.Group(name)
	if err := unix.Mkdir(g.dir, 0o755); err != nil {
		return nil, &os.PathError{Op: "mkdir", Path: g.dir, Err: err}
	}
	return g, nil
}

// Group names a group that may be there.
func (t *Tree) Group(name string) *Group { return &Group{dir: t.dir + "/" + name} }

// Names lists the groups that are there.
func (t *Tree) Names() (names []string) {
	entries, _ := os.ReadDir(t.dir) // a group that is gone has none
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// Close removes the groups in which nothing is left.
func (t *Tree) Close() {
	for _, name := range t.Names() {
		t.Group(name).Remove()
	}
	os.Remove(t.dir)
}

// Group is one command's group.
type Group struct{ dir string }

// Open gives a descriptor of the group to start a process in.
func (g *Group) Open() (int, error) {
	return unix.Open(g.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// PIDs lists the processes in the group.
func (g *Group) PIDs() []int { return pids(g.dir) }

// Kill kills every process in the group at once, those that are being forked
// included. It does not wait.
func (g *Group) Kill() error {
	return os.WriteFile(filepath.Join(g.dir, "cgroup.kill"), []byte("1"), 0)
}

// Remove removes the group if nothing is left in it, and reports whether it is
// gone.
func (g *Group) Remove() bool {
	err := unix.Rmdir(g.dir)
	return err == nil || err == unix.ENOENT
}

// OOMKills is the number of processes in the group that the kernel has killed
// for want of memory. Without a memory controller it is not known.
func (g *Group) OOMKills() (n int64, known bool) {
	return counter(filepath.Join(g.dir, "memory.events"))
}

// OOMKills is what the kernel has killed so in podd's own group and below, be
// it a v2 or a v1 one; 0 when that is not known.
func OOMKills() int64 {
	for _, at := range []struct{ kind, controller, file string }{
		{"cgroup2", "", "memory.events"}, {"cgroup", "memory", "memory.oom_control"},
	} {
		if dir, err := own(at.kind, at.controller); err == nil {
			if n, ok := counter(filepath.Join(dir, at.file)); ok {
				return n
			}
		}
	}
	return 0
}

// counter reads the line oom_kill of a file.
func counter(path string) (int64, bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(data)) {
		if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
			kills, err := strconv.ParseInt(strings.TrimSpace(n), 10, 64)
			return kills, err == nil
		}
	}
	return 0, false
}

func pids(dir string) (all []int) {
	data, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs")) // a group that is gone has none
	for _, f := range strings.Fields(string(data)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 0 { // 0 is a process of another PID namespace
			all = append(all, pid)
		}
	}
	return all
}
