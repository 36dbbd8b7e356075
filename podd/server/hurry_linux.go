package server

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// shortTurn is in nanoseconds. The kernel's own is some milliseconds.
const shortTurn = 100_000

// hurry asks for short turns on the processor, and gets them sooner, until the
// function that it returns is called. The answer to a submit competes with the
// command that has just been started: on a busy machine the kernel lets that
// one run first, for a turn. The command itself is scheduled as usual. Kernels
// before 6.12 know nothing of it.
func hurry() (done func()) {
	runtime.LockOSThread() // turns belong to threads
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil || attr.Policy != unix.SCHED_NORMAL {
		return runtime.UnlockOSThread
	}
	set := func(turn uint64) {
		attr.Runtime = turn
		unix.SchedSetAttr(0, attr, 0) // a kernel that refuses is as fast as it is
	}
	attr.Flags |= unix.SCHED_FLAG_RESET_ON_FORK
	set(shortTurn)
	return func() {
		set(0) // the kernel's own choice
		runtime.UnlockOSThread()
	}
}
