package procfs

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Listener is a TCP socket that waits for connections.
type Listener struct {
	Addr  netip.AddrPort
	Inode uint64
}

// Listeners gives the listening TCP sockets of this network namespace, IPv4
// before IPv6.
func Listeners() ([]Listener, error) {
	var all []Listener
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without that family
		}
		if err != nil {
			return nil, err
		}
		ls, err := parseListeners(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, ls...)
	}
	return all, nil
}

func parseListeners(r io.Reader) ([]Listener, error) {
	const listening = "0A" // TCP_LISTEN
	var ls []Listener
	sc := bufio.NewScanner(r)
	sc.Scan() // the heading
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) < 10 || f[3] != listening {
			continue
		}
		addr, err := parseAddr(f[1])
		if err != nil {
			return nil, err
		}
		inode, err := strconv.ParseUint(f[9], 10, 64)
		if err != nil {
			return nil, err
		}
		ls = append(ls, Listener{Addr: addr, Inode: inode})
	}
	return ls, sc.Err()
}

// parseAddr reads "0100007F:1F90": 32-bit words in the machine's byte order,
// which is little-endian wherever podd runs, and a port.
func parseAddr(s string) (netip.AddrPort, error) {
	host, port, ok := strings.Cut(s, ":")
	raw, err := hex.DecodeString(host)
	if !ok || err != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, fmt.Errorf("address %q", s)
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	addr, ok := netip.AddrFromSlice(raw)
	n, err := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil {
		return netip.AddrPort{}, fmt.Errorf("address %q", s)
	}
	return netip.AddrPortFrom(addr, uint16(n)), nil
}
