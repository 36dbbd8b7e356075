// Package x11 speaks the few words of the X11 protocol that the supervisor
// needs: is the server there, how large is its screen, make it another size,
// is a window manager running, and what does the screen show. It replaces
// xdpyinfo, xrandr, xprop and import, each of which would be a process and a
// package in the image.
package x11

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// We announce little-endian in the setup; the server answers in it.
var order = binary.LittleEndian

// Conn is a connection to an X server. It is not safe for concurrent use.
type Conn struct {
	conn   net.Conn
	r      *bufio.Reader
	server int

	sequence uint16 // of the last request

	root          uint32
	rootDepth     byte
	bitsPerPixel  byte // of an image of the root's depth
	width, height int
}

// SocketPath is where the server of display, such as ":99", listens.
func SocketPath(display string) string {
	return "/tmp/.X11-unix/X" + strings.TrimPrefix(display, ":")
}

// LockPath is the lock file of display's server.
func LockPath(display string) string {
	return "/tmp/.X" + strings.TrimPrefix(display, ":") + "-lock"
}

// Dial connects to display's server and completes the setup handshake; a
// server that accepts and says nothing is an error when ctx ends. The
// deadline of ctx also bounds every later call on the connection.
func Dial(ctx context.Context, display string) (*Conn, error) {
	if _, err := strconv.Atoi(strings.TrimPrefix(display, ":")); err != nil {
		return nil, fmt.Errorf("display %q: not a local display", display)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", SocketPath(display))
	if err != nil {
		return nil, err
	}
	if t, ok := ctx.Deadline(); ok {
		conn.SetDeadline(t)
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c := &Conn{conn: conn, r: bufio.NewReaderSize(conn, 64<<10), server: peer(conn)}
	if err := c.setup(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("x11 setup: %w", err)
	}
	return c, nil
}

// Close ends the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// ServerPid is the pid of the server's process, or 0 when it is not known.
func (c *Conn) ServerPid() int { return c.server }

// peer is the pid of the process that listens at the other end.
func peer(conn net.Conn) int {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}

// Size is the screen's size in pixels and its depth when the connection was
// made, or as the last SetSize left it.
func (c *Conn) Size() (width, height, depth int) {
	return c.width, c.height, int(c.rootDepth)
}

// setup sends the connection setup (no authorization: see the supervisor's
// xvfb.go) and reads what the server says about itself.
func (c *Conn) setup() error {
	if _, err := c.conn.Write([]byte{'l', 0, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		return err
	}
	var head [8]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return err
	}
	body := make([]byte, 4*int(order.Uint16(head[6:])))
	if _, err := io.ReadFull(c.r, body); err != nil {
		return err
	}
	if head[0] != 1 {
		return fmt.Errorf("refused: %s", strings.TrimRight(string(body[:min(int(head[1]), len(body))]), "\n\x00"))
	}
	return c.readSetup(body)
}

// readSetup picks the image format and the first screen out
// of the server's setup reply.
func (c *Conn) readSetup(b []byte) error {
	if len(b) < 32 {
		return errors.New("short reply")
	}
	vendor, formats := int(order.Uint16(b[16:])), int(b[21])
	at := 32 + (vendor+3)&^3
	screen := at + 8*formats
	if len(b) < screen+40 {
		return errors.New("short reply")
	}
	s := b[screen:]
	c.root = order.Uint32(s)
	c.width, c.height = int(order.Uint16(s[20:])), int(order.Uint16(s[22:]))
	c.rootDepth = s[38]
	for f := b[at:screen]; len(f) > 0; f = f[8:] {
		if f[0] == c.rootDepth {
			c.bitsPerPixel = f[1]
		}
	}
	return nil
}

// send writes one request. body follows the 4-byte header, of which data is
// the second byte; it is padded to whole words.
func (c *Conn) send(opcode, data byte, body []byte) error {
	n := (4 + len(body) + 3) / 4
	req := make([]byte, 4*n)
	req[0], req[1] = opcode, data
	order.PutUint16(req[2:], uint16(n))
	copy(req[4:], body)
	c.sequence++
	_, err := c.conn.Write(req)
	return err
}

// call sends a request that has a reply and returns all of the reply. An error
// of an earlier request that has none is reported here.
func (c *Conn) call(opcode, data byte, body []byte) ([]byte, error) {
	if err := c.send(opcode, data, body); err != nil {
		return nil, err
	}
	const isError, isReply = 0, 1 // anything else is an event
	var failed error
	for {
		p, err := c.packet()
		if err != nil {
			return nil, err
		}
		ours := order.Uint16(p[2:]) == c.sequence
		if p[0] == isError && failed == nil {
			failed = fmt.Errorf("x11 error %d on request %d.%d, value %#x", p[1], p[10], order.Uint16(p[8:]), order.Uint32(p[4:]))
		}
		if ours && (p[0] == isError || p[0] == isReply) {
			return p, failed
		}
	}
}

// packet reads one error, reply or event.
func (c *Conn) packet() ([]byte, error) {
	const size, isReply = 32, 1
	head := make([]byte, size)
	if _, err := io.ReadFull(c.r, head); err != nil {
		return nil, err
	}
	if head[0] != isReply {
		return head, nil
	}
	p := make([]byte, size+4*int64(order.Uint32(head[4:])))
	copy(p, head)
	_, err := io.ReadFull(c.r, p[size:])
	return p, err
}

// words packs a request's body of 32-bit words.
func words(w ...uint32) []byte {
	b := make([]byte, 0, 4*len(w))
	for _, v := range w {
		b = order.AppendUint32(b, v)
	}
	return b
}

// counted packs a string's 16-bit length, two unused bytes and the string.
func counted(s string) []byte {
	b := order.AppendUint16(nil, uint16(len(s)))
	return append(append(b, 0, 0), s...)
}
