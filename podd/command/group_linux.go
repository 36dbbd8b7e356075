package command

import (
	"errors"
	"syscall"

	"github.com/cubeplexai/cubepod/podd/cgroup"
	"golang.org/x/sys/unix"
)

// newGroup makes a command's control group, where there are any.
func (m *Manager) newGroup(id string) *cgroup.Group {
	t := m.groups.Load()
	if t == nil {
		return nil
	}
	g, err := t.New(id)
	if err != nil {
		m.abandonGroups(err)
		return nil
	}
	return g
}

// abandonGroups goes on without groups: podd need not have them.
func (m *Manager) abandonGroups(err error) {
	if m.groups.Swap(nil) != nil {
		m.log.Printf("control groups: %v; going on without", err)
	}
}

// fork starts a process in its command's group.
func (m *Manager) fork(path string, args []string, attr *syscall.ProcAttr, c *Command) (int, error) {
	m.shield.lower()
	defer m.shield.raise()
	if c.group == nil {
		return syscall.ForkExec(path, args, attr)
	}
	fd, err := c.group.Open()
	if err == nil {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, fd
		var pid int
		pid, err = syscall.ForkExec(path, args, attr)
		unix.Close(fd)
		attr.Sys.UseCgroupFD = false
		if err == nil || !errors.Is(err, syscall.ENOSYS) && !errors.Is(err, syscall.EOPNOTSUPP) && !errors.Is(err, syscall.EBUSY) {
			return pid, err
		}
	}
	// A system call filter without clone3, for one.
	m.abandonGroups(err)
	c.removeGroup()
	c.group = nil
	return syscall.ForkExec(path, args, attr)
}

// removeGroup removes the command's group if nothing is left in it, and
// reports whether there is none any more.
func (c *Command) removeGroup() bool { return c.group == nil || c.group.Remove() }

// oomKilled reports whether a process of the command was killed for want of
// memory. Without a count of its own, the command is taken for the victim when
// it was killed, not by podd, and the count of all has risen. c.mu is held.
func (c *Command) oomKilled() bool {
	if c.group != nil {
		if n, known := c.group.OOMKills(); known {
			return n > 0
		}
	}
	code := c.status.ExitCode
	return code != nil && *code == 128+int(syscall.SIGKILL) && !c.forced && c.m.oomRose()
}
