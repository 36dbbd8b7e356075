package command

import (
	"fmt"

	"github.com/cubeplexai/cubepod/internal/poddapi"
	"golang.org/x/sys/unix"
)

// openTerminal makes a pseudo-terminal whose command side belongs to id. The
// controlling side is non-blocking.
func openTerminal(size poddapi.Size, id Identity) (control, command int, err error) {
	control, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, -1, fmt.Errorf("open terminal: %w", err)
	}
	defer func() {
		if err != nil {
			unix.Close(control)
		}
	}()
	if err = unix.IoctlSetPointerInt(control, unix.TIOCSPTLCK, 0); err != nil {
		return -1, -1, fmt.Errorf("unlock terminal: %w", err)
	}
	if err = resize(control, size); err != nil {
		return -1, -1, err
	}
	// By the open terminal itself, not by its name in /dev/pts, which may be
	// another mount's.
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(control), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		err = fmt.Errorf("open terminal: %w", errno)
		return -1, -1, err
	}
	command = int(fd)
	if unix.Geteuid() == 0 {
		if err = unix.Fchown(command, int(id.UID), -1); err != nil {
			unix.Close(command)
			return -1, -1, fmt.Errorf("own terminal: %w", err)
		}
	}
	return control, command, nil
}

func resize(control int, size poddapi.Size) error {
	if size.Cols == 0 {
		size.Cols = 80
	}
	if size.Rows == 0 {
		size.Rows = 24
	}
	if err := unix.IoctlSetWinsize(control, unix.TIOCSWINSZ, &unix.Winsize{Col: size.Cols, Row: size.Rows}); err != nil {
		return fmt.Errorf("size terminal: %w", err)
	}
	return nil
}
