package caddymodule

import (
	"encoding/binary"
	"errors"
	"io"
)

// What the client of a WebSocket may not send.
var (
	errFrame    = errors.New("not a WebSocket frame of a client")
	errViewOnly = errors.New("the message is not for lookers-on")
)

// A judge follows the data that a WebSocket's client sends, message by message
// and without its masking.
type judge interface {
	// judge takes the next part of a message: start and end say whether it is
	// the first and the last part. It appends to dst what may pass, and reports
	// whether it is a person's, or a program's, doing. An error means that the
	// rest cannot be followed, or must not pass.
	judge(dst, p []byte, start, end bool) (out []byte, input bool, err error)
}

// anyData judges the sockets of servers we know nothing of: all data is input.
type anyData struct{}

func (anyData) judge(dst, p []byte, _, _ bool) ([]byte, bool, error) { return dst, len(p) > 0, nil }

// clientFrames reads what a WebSocket's client sends, RFC 6455 §5.2. It
// passes everything on, and only says when there is input; or, as a filter, it
// passes on what its judge lets through, in frames of its own.
type clientFrames struct {
	src    io.Reader
	judge  judge
	input  func()       // there is input
	refuse func() error // a filter's judge refused; gives what readers get
	filter bool

	lost   bool // the observer lost the thread: all that comes is input
	header [maxHeader]byte
	have   int    // how much of the header has come
	left   uint64 // what is left of the payload
	mask   [4]byte
	at     int  // in mask
	kind   byte // of the data message under way, 0 between messages
	fresh  bool // nothing of that message has come yet

	plain  []byte // data without its masking
	passed []byte // what of it may pass

	// A filter's.
	control []byte // payload of the control frame under way
	scratch []byte
	out     []byte // may go out
	err     error
}

// The frames' kinds.
const (
	opContinue = 0
	opText     = 1
	opBinary   = 2
	opClose    = 8
	opPing     = 9
	opPong     = 10
)

// maxControl bounds the payload of a control frame, RFC 6455 §5.5.
const maxControl = 125

// Read gives the guest's server the next bytes.
func (c *clientFrames) Read(p []byte) (int, error) {
	if !c.filter {
		n, err := c.src.Read(p)
		c.observe(p[:n])
		return n, err
	}
	for len(c.out) == 0 && c.err == nil {
		if c.scratch == nil {
			c.scratch = make([]byte, 2048)
		}
		n, err := c.src.Read(c.scratch)
		if ferr := c.scan(c.scratch[:n]); ferr != nil {
			c.err = c.refuse()
		} else {
			c.err = err
		}
	}
	if len(c.out) > 0 {
		n := copy(p, c.out)
		if c.out = c.out[n:]; len(c.out) == 0 {
			c.out = nil
		}
		return n, nil
	}
	return 0, c.err
}

// observe looks at what passes. What cannot be followed is input.
func (c *clientFrames) observe(p []byte) {
	if !c.lost && c.scan(p) != nil {
		c.lost = true
	}
	if c.lost && len(p) > 0 {
		c.input()
	}
}

// scan follows the frames in p.
func (c *clientFrames) scan(p []byte) error {
	for len(p) > 0 {
		if c.left == 0 {
			n, err := c.scanHeader(p)
			if err != nil {
				return err
			}
			p = p[n:]
			continue
		}
		n := int(min(c.left, uint64(len(p))))
		c.left -= uint64(n)
		if err := c.payload(p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// scanHeader takes what there is of a header and, with its end, begins a frame.
func (c *clientFrames) scanHeader(p []byte) (int, error) {
	n := takeHeader(&c.header, &c.have, p)
	size, ok := frameSize(c.header[:c.have])
	if !ok {
		return n, nil
	}
	have := c.have
	c.have = 0
	return n, c.begin(size, have)
}

// begin begins a frame whose header has have bytes.
func (c *clientFrames) begin(size uint64, have int) error {
	op := c.header[0] & 0x0f
	masked := c.header[1]&0x80 != 0
	switch {
	case !masked, size > 1<<62:
		return errFrame
	case c.filter && c.header[0]&0x70 != 0:
		return errFrame // an extension, and none was agreed on
	case c.filter && op == opText && binaryOnly(c.judge):
		return errViewOnly
	case op >= opClose && (op > opPong || size > maxControl || !c.final()):
		return errFrame
	case op == opContinue && c.kind == 0, op == opText && c.kind != 0, op == opBinary && c.kind != 0, op > opBinary && op < opClose:
		return errFrame
	}
	copy(c.mask[:], c.header[have-4:have])
	c.at, c.left = 0, size
	if op == opText || op == opBinary {
		c.kind, c.fresh = op, true
	}
	if size == 0 {
		return c.payload(nil)
	}
	return nil
}

// binaryOnly reports whether j knows what binary messages mean, and no others:
// an old form of RFB over WebSockets has base64 in text.
func binaryOnly(j judge) bool {
	_, rfb := j.(*rfbClient)
	return rfb
}

// final reports whether the frame at hand ends its message.
func (c *clientFrames) final() bool { return c.header[0]&0x80 != 0 }

// payload takes the next part of a frame's payload, still masked. The frame is
// complete when nothing is left.
func (c *clientFrames) payload(p []byte) error {
	if c.header[0]&0x0f >= opClose {
		return c.controlPayload(p)
	}
	end := c.left == 0 && c.final()
	_, blind := c.judge.(anyData)
	if blind && !c.filter { // nothing looks at the bytes
		if len(p) > 0 {
			c.input()
		}
		c.fresh = false
	} else if err := c.data(p, end); err != nil {
		return err
	}
	if end {
		c.kind = 0
	}
	return nil
}

// data hands the judge the data p, a little at a time: there is no limit to a
// message's size.
func (c *clientFrames) data(p []byte, end bool) error {
	if c.plain == nil {
		c.plain = make([]byte, 256)
	}
	for {
		n := copy(c.plain, p)
		p = p[n:]
		c.unmask(c.plain[:n])
		out, input, err := c.judge.judge(c.passed[:0], c.plain[:n], c.fresh, end && len(p) == 0)
		c.passed = out
		c.fresh = c.fresh && n == 0
		if c.filter && len(out) > 0 {
			c.emit(c.kind, out)
		}
		if err != nil {
			return err
		}
		if input {
			c.input()
		}
		if len(p) == 0 {
			return nil
		}
	}
}

func (c *clientFrames) controlPayload(p []byte) error {
	if !c.filter {
		return nil
	}
	at := len(c.control)
	c.control = append(c.control, p...)
	c.unmask(c.control[at:])
	if c.left == 0 {
		c.emit(c.header[0]&0x0f, c.control)
		c.control = c.control[:0]
	}
	return nil
}

func (c *clientFrames) unmask(p []byte) {
	for i := range p {
		p[i] ^= c.mask[c.at&3]
		c.at++
	}
}

// emit writes a frame to the guest's server. Its mask is zero: masks protect
// what is between a page and a server, and here is nothing but a tunnel.
func (c *clientFrames) emit(op byte, payload []byte) {
	c.out = append(c.out, 0x80|op)
	switch n := len(payload); {
	case n < 126:
		c.out = append(c.out, 0x80|byte(n))
	case n < 1<<16:
		c.out = binary.BigEndian.AppendUint16(append(c.out, 0x80|126), uint16(n))
	default:
		c.out = binary.BigEndian.AppendUint64(append(c.out, 0x80|127), uint64(n))
	}
	c.out = append(c.out, 0, 0, 0, 0)
	c.out = append(c.out, payload...)
}

// body reads a WebSocket of HTTP/2 or HTTP/3 from a request's body.
func (c *clientFrames) body(b io.ReadCloser) io.ReadCloser {
	c.src = b
	return struct {
		io.Reader
		io.Closer
	}{c, b}
}
