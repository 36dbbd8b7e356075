package main

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// becomeSubreaper makes podd the parent of what its commands leave behind, so
// that it can end and reap it. PID 1 is that already.
func becomeSubreaper() error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// reapOrphans reaps the ended children that the kernel gave to podd when their
// parents had died, and returns their number. It runs on the main thread:
// orphans become children of that thread, while commands are children of the
// threads that started them, so that __WNOTHREAD takes no command's exit code
// away.
func reapOrphans() (n int) {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG|unix.WNOTHREAD|unix.WALL, nil)
		switch {
		case err == unix.EINTR:
		case err != nil || pid == 0:
			return n
		default:
			n++
		}
	}
}

// spareThreads is how many threads podd has ready for calls that block.
const spareThreads = 16

// reserveThreads makes threads while that is possible: when a sandbox has used
// up the processes it may have, the Go runtime ends a program that needs
// another thread.
func reserveThreads() {
	var there, all sync.WaitGroup
	there.Add(spareThreads)
	for range spareThreads {
		all.Go(func() {
			runtime.LockOSThread() // one each
			defer runtime.UnlockOSThread()
			there.Done()
			there.Wait()
		})
	}
	all.Wait()
}
