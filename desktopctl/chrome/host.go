package chrome

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// SandboxWorks reports whether this user may make the namespaces that
// Chromium's sandbox is built of. Container runtimes and some kernels forbid
// it, each in its own way, so the answer is to try.
func SandboxWorks() bool {
	uid, gid := unix.Getuid(), unix.Getgid()
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}},
	}
	return cmd.Run() == nil
}

// enoughSharedMemory is what a page with video and large canvases can use.
const enoughSharedMemory = 512 << 20

// SharedMemoryWorks reports whether /dev/shm has room for a browser.
// Containers get 64 MiB by default, too little for a tab or two.
func SharedMemoryWorks() bool {
	var s unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &s); err != nil {
		return false
	}
	return s.Bavail*uint64(s.Bsize) >= enoughSharedMemory && unix.Access("/dev/shm", unix.W_OK) == nil
}
