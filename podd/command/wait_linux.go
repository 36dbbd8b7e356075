package command

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// siginfo is the kernel's siginfo_t as waitid fills it on 64-bit machines.
type siginfo struct {
	signo, errno, code, _ int32
	pid                   int32
	uid                   uint32
	status                int32
	_                     [100]byte
}

// The codes of a siginfo that waitid fills, see waitid(2).
const (
	exited = 1
	killed = 2
	dumped = 3
)

// awaitExit waits until the child pid has ended and leaves it unreaped, so
// that its number stays its own. pidfd, which it closes, spares a waiting
// thread per command; -1 does with one.
func awaitExit(pid, pidfd int) (siginfo, error) {
	if pidfd < 0 || unix.SetNonblock(pidfd, true) != nil {
		return waitid(pid, 0)
	}
	f := os.NewFile(uintptr(pidfd), "pidfd")
	defer f.Close()
	conn, err := f.SyscallConn()
	if err != nil {
		return waitid(pid, 0)
	}
	var info siginfo
	var waitErr error
	if err := conn.Read(func(uintptr) bool {
		info, waitErr = waitid(pid, unix.WNOHANG)
		return info.pid != 0 || waitErr != nil
	}); err != nil {
		return waitid(pid, 0) // a kernel that cannot poll it
	}
	return info, waitErr
}

func waitid(pid int, options uintptr) (siginfo, error) {
	for {
		var info siginfo
		_, _, e := syscall.Syscall6(unix.SYS_WAITID, unix.P_PID, uintptr(pid), uintptr(unsafe.Pointer(&info)),
			unix.WEXITED|unix.WNOWAIT|options, 0, 0)
		switch e {
		case 0:
			return info, nil
		case unix.EINTR:
		default:
			return siginfo{}, e
		}
	}
}

// reap lets the child pid go; its number may be given to another process from
// now on.
func reap(pid int) {
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
			return
		}
	}
}

// groupHasChildren reports whether a child of ours is alive in the process
// group. podd is the subreaper of its commands, so the background children of
// a leader that ended are its own. A zombie does not count: waitid that asks
// for stopped children only does not see one.
func groupHasChildren(group int) bool {
	_, _, e := syscall.Syscall6(unix.SYS_WAITID, unix.P_PGID, uintptr(group), 0, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, 0, 0)
	return e != unix.ECHILD
}
