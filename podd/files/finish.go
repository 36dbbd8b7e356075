package files

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// finish closes f, a new file of podd's own, and gives it to owner. An
// executable can be executed from then on.
func finish(f *os.File, owner Owner, mode uint32) error {
	// Another descriptor of the same file, whatever has its name by now.
	fd, err := unix.Open(byFD(int(f.Fd())), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := f.Close(); err != nil {
		return err
	}
	if mode&0o111 != 0 {
		awaitWriters(fd)
	}
	if err := chown(fd, owner); err != nil {
		return err
	}
	return unix.Fchmod(fd, mode&0o7777) // last: chown takes a set-uid bit away
}

const (
	// writersBound is how long a new executable waits for its writers.
	writersBound = time.Second
	writersTick  = 200 * time.Microsecond
)

// awaitWriters waits until nobody has the file behind fd open for writing.
// podd has closed it, but a process that was forked meanwhile has its
// descriptors until its exec is over, and as long the kernel executes the file
// for nobody (ETXTBSY). The kernel does not say when that ends; it grants its
// owner a read lease as soon as it has. Where there are no leases the moment
// is risked.
func awaitWriters(fd int) {
	bound := time.NewTimer(writersBound)
	defer bound.Stop()
	tick := time.NewTicker(writersTick)
	defer tick.Stop()
	for {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK); err != unix.EAGAIN {
			unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
			return
		}
		select {
		case <-tick.C:
		case <-bound.C:
			return
		}
	}
}
