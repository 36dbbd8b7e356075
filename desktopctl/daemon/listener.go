package daemon

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"strings"
)

// ErrForeignListener reports that somebody else listens on a port.
var ErrForeignListener = errors.New("another process listens on the port")

// Listens reports whether the process itself listens on an IPv4 address. It
// fails with ErrForeignListener when somebody else does.
func (p *Process) Listens(addr netip.AddrPort) (bool, error) {
	inode, err := listenerInode(addr)
	if err != nil || inode == "" {
		return false, err
	}
	want := "socket:[" + inode + "]"
	fds := fmt.Sprintf("/proc/%d/fd", p.Pid)
	entries, err := os.ReadDir(fds)
	if errors.Is(err, fs.ErrNotExist) {
		return false, ErrExited
	} else if err != nil {
		return false, err
	}
	for _, e := range entries {
		if link, err := os.Readlink(fds + "/" + e.Name()); err == nil && link == want {
			return true, nil
		}
	}
	return false, Final(ErrForeignListener)
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
