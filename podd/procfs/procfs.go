// Package procfs reads what the kernel tells about processes and listening
// sockets under /proc. It decides nothing about them.
package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Process is one line of /proc/PID/stat.
type Process struct {
	PID, Parent, Group, Session int
	Comm                        string
	State                       byte
	// Start is when it began, in clock ticks since boot. With PID it names
	// one process and no later one of the same number.
	Start uint64
}

// Zombie reports whether p has ended and waits to be reaped.
func (p Process) Zombie() bool { return p.State == 'Z' || p.State == 'X' }

// Read gives the process pid.
func Read(pid int) (Process, error) {
	data, err := os.ReadFile(path(pid, "stat"))
	if err != nil {
		return Process{}, err
	}
	return parseStat(data)
}

// All gives every process that exists. One that ends meanwhile is left out.
func All() ([]Process, error) {
	pids, err := numbers("/proc")
	if err != nil {
		return nil, err
	}
	all := make([]Process, 0, len(pids))
	for _, pid := range pids {
		if p, err := Read(pid); err == nil {
			all = append(all, p)
		}
	}
	return all, nil
}

// Environ gives the environment pid was started with, entries ended by NUL.
func Environ(pid int) ([]byte, error) {
	data, err := os.ReadFile(path(pid, "environ"))
	if errors.Is(err, fs.ErrPermission) {
		err = asOwner(pid, func() (err error) {
			data, err = os.ReadFile(path(pid, "environ"))
			return err
		})
	}
	return data, err
}

// Sockets gives the inodes of the sockets that pid holds open.
func Sockets(pid int) ([]uint64, error) {
	inodes, err := sockets(pid)
	if errors.Is(err, fs.ErrPermission) {
		err = asOwner(pid, func() (err error) {
			inodes, err = sockets(pid)
			return err
		})
	}
	return inodes, err
}

func sockets(pid int) ([]uint64, error) {
	dir := path(pid, "fd")
	fds, err := numbers(dir)
	if err != nil {
		return nil, err
	}
	var inodes []uint64
	for _, fd := range fds {
		link, err := os.Readlink(dir + "/" + strconv.Itoa(fd))
		if errors.Is(err, fs.ErrPermission) {
			return nil, err
		}
		var inode uint64
		if _, err := fmt.Sscanf(link, "socket:[%d]", &inode); err == nil {
			inodes = append(inodes, inode)
		}
	}
	return inodes, nil
}

// asOwner calls f with the file-system identity of pid's owner. A root that
// lacks CAP_SYS_PTRACE, as in most containers, may look into the processes of
// a user only as that user.
func asOwner(pid int, f func() error) error {
	uid, gid := os.Geteuid(), os.Getegid()
	if uid != 0 {
		return fs.ErrPermission
	}
	var st syscall.Stat_t
	if err := syscall.Stat(path(pid, ""), &st); err != nil {
		return err
	}
	// The identity belongs to the thread. It is given back before the thread
	// serves another goroutine; taking root's own again cannot be refused.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer unix.SetfsgidRetGid(gid)
	defer unix.SetfsuidRetUid(uid)
	unix.SetfsgidRetGid(int(st.Gid))
	unix.SetfsuidRetUid(int(st.Uid))
	return f()
}

func path(pid int, file string) string { return "/proc/" + strconv.Itoa(pid) + "/" + file }

// numbers lists the entries of dir whose names are numbers.
func numbers(dir string) ([]int, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	ns := make([]int, 0, len(names))
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			ns = append(ns, n)
		}
	}
	return ns, nil
}

// parseStat reads "pid (comm) state ppid pgrp session …". comm may hold spaces
// and parentheses, so the fields are counted from its last closing one.
func parseStat(data []byte) (Process, error) {
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 1 || end < open {
		return Process{}, fmt.Errorf("stat: no process name in %q", data)
	}
	f := bytes.Fields(data[end+1:])
	const start = 19 // field 22 of proc(5), where state is field 3
	if len(f) <= start || len(f[0]) != 1 {
		return Process{}, fmt.Errorf("stat: too few fields in %q", data)
	}
	p := Process{Comm: string(data[open+1 : end]), State: f[0][0]}
	var errs [5]error
	p.PID, errs[0] = strconv.Atoi(string(bytes.TrimSpace(data[:open])))
	p.Parent, errs[1] = strconv.Atoi(string(f[1]))
	p.Group, errs[2] = strconv.Atoi(string(f[2]))
	p.Session, errs[3] = strconv.Atoi(string(f[3]))
	p.Start, errs[4] = strconv.ParseUint(string(f[start]), 10, 64)
	return p, errors.Join(errs[:]...)
}
