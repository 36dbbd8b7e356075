package main

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// rfb is a VNC client that measures: it takes every picture and looks at none.
type rfb struct {
	conn net.Conn
	r    *counter

	width, height uint16

	write  sync.Mutex
	pixels atomic.Int64 // that were sent so far

	updates chan time.Time // when each update had arrived
	cut     chan string    // what was copied in the sandbox
	ended   chan error
	offer   string // what is on our side's clipboard
}

// The encodings we take: Tight, which noVNC prefers, and the clipboard beyond
// Latin-1.
const (
	tight             = 7
	extendedClipboard = -1063131698 // 0xC0A1E5CE
)

// counter counts the bytes that come.
type counter struct {
	io.Reader
	n atomic.Int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// dialRFB connects as a viewer that may do everything.
func dialRFB(ctx context.Context, socket string) (*rfb, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	c := &rfb{
		conn: conn, r: &counter{Reader: conn},
		updates: make(chan time.Time, 1000), cut: make(chan string, 10), ended: make(chan error, 1),
	}
	if err := c.handshake(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("handshake: %w", err)
	}
	go func() { c.ended <- c.receive() }()
	return c, nil
}

func (c *rfb) Close() error {
	err := c.conn.Close()
	<-c.ended
	return err
}

func (c *rfb) handshake() error {
	c.send([]byte("RFB 003.008\n"))
	if _, err := c.bytes(12); err != nil {
		return err
	}
	n, err := c.bytes(1)
	if err != nil {
		return err
	}
	if _, err := c.bytes(int(n[0])); err != nil {
		return err
	}
	c.send([]byte{1}) // no password
	if result, err := c.bytes(4); err != nil || binary.BigEndian.Uint32(result) != 0 {
		return fmt.Errorf("refused: %v", err)
	}
	c.send([]byte{1}) // others may watch
	init, err := c.bytes(24)
	if err != nil {
		return err
	}
	c.width, c.height = binary.BigEndian.Uint16(init), binary.BigEndian.Uint16(init[2:])
	if _, err := c.bytes(int(binary.BigEndian.Uint32(init[20:]))); err != nil {
		return err
	}
	// noVNC's pixels: 32 bits, true colour.
	c.send([]byte{0, 0, 0, 0, 32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 0, 8, 16, 0, 0, 0})
	encodings := []int32{tight, 0, -26 /* quality 6 */, -254 /* compression 2 */, -223 /* new size */, extendedClipboard}
	msg := binary.BigEndian.AppendUint16([]byte{2, 0}, uint16(len(encodings)))
	for _, e := range encodings {
		msg = binary.BigEndian.AppendUint32(msg, uint32(e))
	}
	c.send(msg)
	return nil
}

// send writes a message; a failure shows where the answer is read.
func (c *rfb) send(msg []byte) {
	c.write.Lock()
	defer c.write.Unlock()
	_, _ = c.conn.Write(msg)
}

// request asks for what has changed, or for all there is.
func (c *rfb) request(all bool) {
	msg := []byte{3, 1, 0, 0, 0, 0}
	if all {
		msg[1] = 0
	}
	msg = binary.BigEndian.AppendUint16(msg, c.width)
	c.send(binary.BigEndian.AppendUint16(msg, c.height))
}

func (c *rfb) key(down bool, keysym uint32) {
	msg := []byte{4, 0, 0, 0}
	if down {
		msg[1] = 1
	}
	c.send(binary.BigEndian.AppendUint32(msg, keysym))
}

// click presses a mouse button in the middle of the screen.
func (c *rfb) click() {
	for _, button := range []byte{0, 1, 0} {
		msg := binary.BigEndian.AppendUint16([]byte{5, button}, c.width/2)
		c.send(binary.BigEndian.AppendUint16(msg, c.height/2))
	}
}

func (c *rfb) bytes(n int) ([]byte, error) {
	p := make([]byte, n)
	_, err := io.ReadFull(c.r, p)
	return p, err
}

// receive takes what the server sends, and asks for the next update when it has
// one.
func (c *rfb) receive() error {
	for {
		kind, err := c.bytes(1)
		if err != nil {
			return err
		}
		switch kind[0] {
		case 0:
			pixels, err := c.update()
			if err != nil {
				return err
			}
			c.request(false)
			c.pixels.Add(int64(pixels))
			if pixels == 0 {
				continue // the pointer, perhaps
			}
			select {
			case c.updates <- time.Now():
			default:
			}
		case 2: // bell
		case 3:
			if err := c.cutText(); err != nil {
				return err
			}
		default:
			return fmt.Errorf("message %d", kind[0])
		}
	}
}

// update takes an update and gives its size in pixels.
func (c *rfb) update() (pixels int, err error) {
	head, err := c.bytes(3)
	if err != nil {
		return 0, err
	}
	for range binary.BigEndian.Uint16(head[1:]) {
		rect, err := c.bytes(12)
		if err != nil {
			return 0, err
		}
		w, h := int(binary.BigEndian.Uint16(rect[4:])), int(binary.BigEndian.Uint16(rect[6:]))
		switch encoding := int32(binary.BigEndian.Uint32(rect[8:])); encoding {
		case 0:
			_, err = io.CopyN(io.Discard, c.r, int64(w)*int64(h)*4)
			pixels += w * h
		case tight:
			err = c.tightRect(w, h)
			pixels += w * h
		case -223:
			c.width, c.height = uint16(w), uint16(h)
		default:
			err = fmt.Errorf("encoding %d", encoding)
		}
		if err != nil {
			return 0, err
		}
	}
	return pixels, nil
}

// tightRect skips a rectangle; its parts tell their sizes.
func (c *rfb) tightRect(w, h int) error {
	control, err := c.bytes(1)
	if err != nil {
		return err
	}
	const pixel, uncompressed = 3, 12
	switch method := control[0] >> 4; {
	case method == 8: // one colour
		_, err := c.bytes(pixel)
		return err
	case method == 9: // JPEG
		return c.skipCompact()
	case method > 9:
		return fmt.Errorf("tight method %d", method)
	}
	size := w * h * pixel
	if control[0]&0x40 != 0 {
		filter, err := c.bytes(1)
		if err != nil {
			return err
		}
		if filter[0] == 1 { // palette
			n, err := c.bytes(1)
			if err != nil {
				return err
			}
			colours := int(n[0]) + 1
			if _, err := c.bytes(colours * pixel); err != nil {
				return err
			}
			if size = w * h; colours == 2 {
				size = (w + 7) / 8 * h
			}
		}
	}
	if size < uncompressed {
		_, err := c.bytes(size)
		return err
	}
	return c.skipCompact()
}

func (c *rfb) skipCompact() error {
	n := 0
	for shift := 0; shift <= 14; shift += 7 {
		b, err := c.bytes(1)
		if err != nil {
			return err
		}
		if shift == 14 {
			n |= int(b[0]) << 14
			break
		}
		n |= int(b[0]&0x7f) << shift
		if b[0]&0x80 == 0 {
			break
		}
	}
	_, err := io.CopyN(io.Discard, c.r, int64(n))
	return err
}

// The actions of the extended clipboard; text is the one format we have.
const (
	formatText    = 1
	actionCaps    = 1 << 24
	actionRequest = 1 << 25
	actionNotify  = 1 << 27
	actionProvide = 1 << 28
)

// copy puts text on our side's clipboard and tells the server.
func (c *rfb) copy(text string) {
	c.offer = text
	c.extended(actionNotify|formatText, nil)
}

func (c *rfb) extended(flags uint32, data []byte) {
	msg := binary.BigEndian.AppendUint32([]byte{6, 0, 0, 0}, uint32(-int32(4+len(data))))
	msg = binary.BigEndian.AppendUint32(msg, flags)
	c.send(append(msg, data...))
}

func (c *rfb) cutText() error {
	head, err := c.bytes(7)
	if err != nil {
		return err
	}
	n := int32(binary.BigEndian.Uint32(head[3:]))
	if n >= 0 {
		text, err := c.bytes(int(n))
		c.copied(string(text))
		return err
	}
	body, err := c.bytes(int(-n))
	if err != nil {
		return err
	}
	switch flags := binary.BigEndian.Uint32(body); {
	case flags&actionCaps != 0:
		caps := binary.BigEndian.AppendUint32(nil, 1<<20)
		c.extended(actionCaps|actionRequest|actionNotify|actionProvide|formatText, caps)
	case flags&actionNotify != 0 && flags&formatText != 0:
		c.extended(actionRequest|formatText, nil)
	case flags&actionRequest != 0:
		var z bytes.Buffer
		w := zlib.NewWriter(&z)
		text := c.offer + "\x00"
		_, _ = w.Write(binary.BigEndian.AppendUint32(nil, uint32(len(text))))
		_, _ = io.WriteString(w, text)
		w.Close()
		c.extended(actionProvide|formatText, z.Bytes())
	case flags&actionProvide != 0:
		z, err := zlib.NewReader(bytes.NewReader(body[4:]))
		if err != nil {
			return err
		}
		var size uint32
		if err := binary.Read(z, binary.BigEndian, &size); err != nil {
			return err
		}
		text := make([]byte, size)
		if _, err := io.ReadFull(z, text); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		c.copied(string(bytes.TrimRight(text, "\x00")))
	}
	return nil
}

func (c *rfb) copied(text string) {
	select {
	case c.cut <- text:
	default:
	}
}
