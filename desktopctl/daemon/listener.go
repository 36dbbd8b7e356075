package daemon

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ListenerError reports that somebody else listens on a port.
type ListenerError struct {
	Addr netip.AddrPort
	Pid  int // 0 when it is another user's
}

func (e *ListenerError) Error() string {
	if e.Pid == 0 {
		return fmt.Sprintf("a process of another user listens on %v", e.Addr)
	}
	return fmt.Sprintf("the process %d listens on %v", e.Pid, e.Addr)
}

// Vacant returns nil when nobody listens on addr, and otherwise a
// *ListenerError.
func Vacant(addr netip.AddrPort) error {
	// To listen is quicker than to look.
	l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(addr))
	if err == nil {
		return l.Close()
	}
	if !errors.Is(err, unix.EADDRINUSE) {
		return err
	}
	return foreign(addr)
}

func foreign(addr netip.AddrPort) *ListenerError {
	e := &ListenerError{Addr: addr}
	inode, err := listenerInode(addr)
	if err != nil || inode == "" {
		return e
	}
	eachProcess(func(pid int, _ stat) {
		if has, err := hasSocket(pid, inode); err == nil && has {
			e.Pid = pid
		}
	})
	return e
}

// Listens reports whether the process itself listens on an IPv4 address. It
// fails with a *ListenerError when somebody else does.
func (p *Process) Listens(addr netip.AddrPort) (bool, error) {
	inode, err := listenerInode(addr)
	if err != nil || inode == "" {
		return false, err
	}
	has, err := hasSocket(p.Pid, inode)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, ErrExited
	case err != nil:
		return false, err
	case !has:
		return false, Final(foreign(addr))
	}
	return true, nil
}

// hasSocket says whether a process has the socket of that inode open.
func hasSocket(pid int, inode string) (bool, error) {
	want := "socket:[" + inode + "]"
	fds := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(fds)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if link, err := os.Readlink(fds + "/" + e.Name()); err == nil && link == want {
			return true, nil
		}
	}
	return false, nil
}

// lineSize is the width of a line of /proc/net/tcp.
const lineSize = 150

// listenerInode is the inode of the socket that listens on addr, or "".
//
// The kernel lists listening sockets first and then walks its table of
// connections, which takes milliseconds however few there are. It stops where
// a read is full, so we read line by line.
func listenerInode(addr netip.AddrPort) (string, error) {
	const listening = "0A"
	ip := addr.Addr().As4()
	local := fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(ip[:]), addr.Port())
	f, err := os.Open("/proc/net/tcp")
	if err != nil {
		return "", err
	}
	defer f.Close()
	for r := bufio.NewReaderSize(f, lineSize); ; {
		line, err := r.ReadString('\n')
		w := strings.Fields(line)
		if len(w) > 9 && w[1] == local && w[3] == listening {
			return w[9], nil
		}
		if errors.Is(err, io.EOF) {
			return "", nil
		} else if err != nil {
			return "", err
		}
	}
}
