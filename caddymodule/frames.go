package caddymodule

import (
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"
)

// closeGrace is how long a client has to take the rest of a frame and the
// close frame, and then to close its side.
const closeGrace = 2 * time.Second

// errStreamClosed is what writers get after a close frame was sent.
var errStreamClosed = errors.New("the stream was closed")

// frameWriter writes what a WebSocket's server says to its client and knows
// where a frame ends, so that a close frame of the edge never lands inside
// another one. Every writer goes through it, also Caddy's, which closes streams
// of a configuration long gone.
type frameWriter struct {
	write    func([]byte) (int, error)
	flush    func() error          // nil where nothing is held back
	deadline func(time.Time) error // bounds reads and writes of the client, at any time

	sent chan struct{} // closed when the close frame is out

	deadlineMu sync.Mutex // guards stopped; held while the deadline is set
	stopped    bool

	mu      sync.Mutex      // guards the fields below
	header  [maxHeader]byte // of the frame at hand
	have    int             // how much of it has come
	payload uint64          // what is left of it
	pending []byte          // a close frame that waits for the end of the frame
	over    bool            // a close frame was sent, by whichever side
}

func newFrameWriter(write func([]byte) (int, error), deadline func(time.Time) error) *frameWriter {
	return &frameWriter{write: write, deadline: deadline, sent: make(chan struct{})}
}

// Write passes p on. Once a close frame is due it passes what completes the
// frame at hand, then the close frame, and fails.
func (f *frameWriter) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over && (f.pending != nil || f.boundary()) {
		return 0, errStreamClosed
	}
	if f.pending == nil && isCaddysClose(p) {
		f.pending = append([]byte(nil), p...)
		if f.boundary() {
			f.sendPending()
		}
		return len(p), nil
	}
	if f.pending == nil {
		f.scan(p, false)
		return f.write(p)
	}
	n := f.scan(p, true)
	n, err := f.write(p[:n])
	if err != nil {
		return n, err
	}
	if f.boundary() {
		f.sendPending()
		return n, errStreamClosed
	}
	return n, nil // all of it: the frame goes on
}

// close sends a close frame at the next frame boundary and returns once it is
// out, or cannot go out within [closeGrace]. The stream takes no more after it.
func (f *frameWriter) close(status uint16, reason string) {
	// Also frees a writer that holds the lock for a client that does not read.
	f.deadlineMu.Lock()
	if !f.stopped {
		_ = f.deadline(time.Now().Add(closeGrace)) // a connection that is closed already needs none
	}
	f.deadlineMu.Unlock()
	f.mu.Lock()
	if f.over || f.pending != nil {
		f.mu.Unlock()
		return
	}
	f.pending = closeFrame(status, reason)
	if f.boundary() {
		f.sendPending()
	}
	f.mu.Unlock()
	grace := time.NewTimer(closeGrace)
	defer grace.Stop()
	select {
	case <-f.sent:
	case <-grace.C:
	}
}

// Flush sends what is held back. Like a write it excludes all others.
func (f *frameWriter) Flush() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.flush()
}

// stop lets nothing through any more. After it the client's connection is not
// touched.
func (f *frameWriter) stop() {
	f.deadlineMu.Lock()
	f.stopped = true
	f.deadlineMu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	if f.pending == nil {
		f.pending = []byte{}
	}
}

// closing reports whether the edge itself closed the stream.
func (f *frameWriter) closing() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pending != nil
}

// sendPending sends the close frame that waits. The lock is held.
func (f *frameWriter) sendPending() {
	f.over = true
	_, _ = f.write(f.pending) // whoever cannot be told will see the end
	if f.flush != nil {
		_ = f.flush()
	}
	close(f.sent)
}

// boundary reports whether a frame has ended and none has begun.
func (f *frameWriter) boundary() bool { return f.have == 0 && f.payload == 0 }

// scan follows the frames in p. With stop it ends at the first boundary and
// returns how far it came.
func (f *frameWriter) scan(p []byte, stop bool) int {
	n := 0
	for n < len(p) {
		if f.payload > 0 {
			step := min(f.payload, uint64(len(p)-n))
			f.payload -= step
			n += int(step)
		} else {
			n += takeHeader(&f.header, &f.have, p[n:])
			if size, ok := frameSize(f.header[:f.have]); ok {
				if f.header[0]&0x0f == opClose {
					f.over = true
				}
				f.payload = size
				f.have = 0
			}
		}
		if stop && f.boundary() {
			return n
		}
	}
	return n
}

// maxHeader is the longest header of a frame.
const maxHeader = 14

// headerSize gives the size of the header that begins with h, or what is needed
// to tell.
func headerSize(h []byte) int {
	if len(h) < 2 {
		return 2
	}
	need := 2
	switch h[1] & 0x7f {
	case 126:
		need += 2
	case 127:
		need += 8
	}
	if h[1]&0x80 != 0 {
		need += 4
	}
	return need
}

// takeHeader moves from p to h, of which have bytes have come, what belongs to
// the header, and says how much that was.
func takeHeader(h *[maxHeader]byte, have *int, p []byte) int {
	n := 0
	for {
		need := headerSize(h[:*have]) - *have
		if need <= 0 || n == len(p) {
			return n
		}
		step := copy(h[*have:*have+need], p[n:])
		*have += step
		n += step
	}
}

// frameSize gives the payload's size once the header is complete, RFC 6455
// §5.2. Servers do not mask, but who would is followed all the same.
func frameSize(h []byte) (uint64, bool) {
	if len(h) < headerSize(h) {
		return 0, false
	}
	size := uint64(h[1] & 0x7f)
	switch size {
	case 126:
		size = uint64(binary.BigEndian.Uint16(h[2:]))
	case 127:
		size = binary.BigEndian.Uint64(h[2:])
	}
	return size, true
}

func closeFrame(status uint16, reason string) []byte {
	b := []byte{0x88, byte(2 + len(reason)), 0, 0}
	binary.BigEndian.PutUint16(b[2:], status)
	return append(b, reason...)
}

// isCaddysClose recognises the close frame that reverse_proxy writes when it
// unloads, in one piece, whatever is under way. A guest's that looks the same is
// one too.
func isCaddysClose(p []byte) bool {
	return len(p) == 4 && p[0] == 0x88 && p[1] == 2 && p[2] == closeGoingAway>>8 && p[3] == closeGoingAway&0xff
}

// streamConn is a hijacked client connection of a WebSocket.
type streamConn struct {
	net.Conn
	frames *frameWriter
	client *clientFrames

	read sync.Mutex // one reader at a time
}

// Read reads what the client sent.
func (c *streamConn) Read(p []byte) (int, error) {
	c.read.Lock()
	defer c.read.Unlock()
	return c.client.Read(p)
}

// drain throws away what the client sends after the end.
func (c *streamConn) drain(scrap []byte) error {
	c.read.Lock()
	defer c.read.Unlock()
	_, err := c.Conn.Read(scrap)
	return err
}

// Write goes through the frame writer.
func (c *streamConn) Write(p []byte) (int, error) { return c.frames.Write(p) }

// CloseWrite passes a half-close on.
func (c *streamConn) CloseWrite() error { return closeWrite(c.Conn) }

// Close closes the connection. After a close frame it first lets the client
// close: closing with unread data resets the connection, and the frame may be
// lost with it.
func (c *streamConn) Close() error {
	if c.frames.closing() {
		_ = closeWrite(c.Conn) // some wrappers know none; the client may close all the same
		_ = c.SetReadDeadline(time.Now().Add(closeGrace / 2))
		var scrap [512]byte
		for {
			if err := c.drain(scrap[:]); err != nil {
				break
			}
		}
	}
	return c.Conn.Close()
}

func closeWrite(c net.Conn) error {
	if hc, ok := c.(interface{ CloseWrite() error }); ok {
		return hc.CloseWrite()
	}
	return errors.ErrUnsupported
}

// notedConn is a client's connection that changed to some other protocol.
type notedConn struct {
	net.Conn
	use *use
}

// Read reads what the client sent.
func (c *notedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.use.note()
	}
	return n, err
}

// CloseWrite passes a half-close on.
func (c *notedConn) CloseWrite() error { return closeWrite(c.Conn) }
