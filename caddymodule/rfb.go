package caddymodule

import (
	"bytes"
	"encoding/binary"
)

// rfbClient follows what the client of a remote desktop says, RFC 6143 and the
// extensions that noVNC and x11vnc know. The messages of RFB are a stream of
// bytes to which the WebSocket's messages mean nothing.
//
//	"RFB 003.00x\n", security type, [16 bytes of a password's answer], shared
//	flag, then messages: a type, and a size that depends on it
//
// For lookers-on it lets through what asks for the picture, and turns the
// shared flag on: without it they would throw the others out.
type rfbClient struct {
	view bool

	stage rfbStage
	head  []byte // of the message at hand, until its size is known
	left  uint64 // what is left of it
	pass  bool   // it may pass

	listing     bool   // the message at hand is SetEncodings
	word        uint32 // the encoding that is coming
	moreButtons bool   // the last SetEncodings named [rfbExtendedMouseButtons]
}

type rfbStage int

const (
	rfbVersion rfbStage = iota
	rfbSecurity
	rfbPassword
	rfbInit
	rfbMessages
)

// The client's messages.
const (
	rfbSetPixelFormat           = 0
	rfbSetEncodings             = 2
	rfbFramebufferUpdateRequest = 3
	rfbKeyEvent                 = 4
	rfbPointerEvent             = 5
	rfbClientCutText            = 6
	rfbEnableContinuousUpdates  = 150
	rfbFence                    = 248
	rfbXVP                      = 250
	rfbSetDesktopSize           = 251
	rfbQEMU                     = 255
)

// rfbExtendedMouseButtons is the pseudo-encoding, -316, by which a client says
// that its PointerEvents may be a byte longer. noVNC names it since 1.6, and
// TigerVNC takes it since 1.14.
const rfbExtendedMouseButtons = 0xfffffec4

func (c *rfbClient) judge(dst, p []byte, _, _ bool) (out []byte, input bool, err error) {
	for len(p) > 0 {
		if c.left > 0 {
			n := int(min(c.left, uint64(len(p))))
			if c.pass {
				dst = append(dst, p[:n]...)
			}
			if c.listing {
				c.encodings(p[:n])
			}
			c.left -= uint64(n)
			p = p[n:]
			continue
		}
		c.head = append(c.head, p[0])
		p = p[1:]
		size, ok := c.size()
		if !ok {
			continue
		}
		if size < uint64(len(c.head)) {
			return dst, input, errViewOnly
		}
		var done bool // by somebody's hand
		c.pass, done = c.complete()
		input = input || done
		if c.pass {
			dst = append(dst, c.head...)
		}
		c.left = size - uint64(len(c.head))
		c.head = c.head[:0]
	}
	return dst, input, nil
}

// encodings looks through the next part of a list of encodings, before it is
// taken off what is left.
func (c *rfbClient) encodings(p []byte) {
	for i, b := range p {
		c.word = c.word<<8 | uint32(b)
		if (c.left-uint64(i))%4 == 1 && c.word == rfbExtendedMouseButtons {
			c.moreButtons = true
		}
	}
}

// size gives the size of the message that begins with head, once head tells it.
// A size below head's stands for a message nobody knows.
func (c *rfbClient) size() (uint64, bool) {
	h := c.head
	have := uint64(len(h))
	fixed := func(n uint64) (uint64, bool) { return n, true }
	// counted messages tell their size in their first n bytes.
	counted := func(n uint64, size func() uint64) (uint64, bool) {
		if have < n {
			return 0, false
		}
		return size(), true
	}
	const unknown = 0
	switch c.stage {
	case rfbVersion:
		return counted(12, func() uint64 {
			if !bytes.Equal(h, []byte("RFB 003.007\n")) && !bytes.Equal(h, []byte("RFB 003.008\n")) {
				return unknown // in older ones the server chooses, and the client's bytes alone don't tell
			}
			return 12
		})
	case rfbSecurity:
		if h[0] != 1 && h[0] != 2 {
			return fixed(unknown)
		}
		return fixed(1)
	case rfbPassword:
		return fixed(16)
	case rfbInit:
		return fixed(1)
	}
	switch h[0] {
	case rfbSetPixelFormat:
		return fixed(20)
	case rfbSetEncodings:
		return counted(4, func() uint64 { return 4 + 4*uint64(binary.BigEndian.Uint16(h[2:])) })
	case rfbFramebufferUpdateRequest, rfbEnableContinuousUpdates:
		return fixed(10)
	case rfbKeyEvent:
		return fixed(8)
	case rfbPointerEvent:
		// With the extension for more buttons, the eighth button's bit says that
		// their byte follows. A server of the extension reads it by the same rule.
		return counted(2, func() uint64 {
			if c.moreButtons && h[1]&0x80 != 0 {
				return 7
			}
			return 6
		})
	case rfbClientCutText:
		return counted(8, func() uint64 {
			n := int64(int32(binary.BigEndian.Uint32(h[4:])))
			return 8 + uint64(max(n, -n)) // negative in the extended form
		})
	case rfbFence:
		return counted(9, func() uint64 {
			if h[8] > 64 {
				return unknown
			}
			return 9 + uint64(h[8])
		})
	case rfbXVP:
		return fixed(4)
	case rfbSetDesktopSize:
		return counted(8, func() uint64 { return 8 + 16*uint64(h[6]) })
	case rfbQEMU:
		return counted(4, func() uint64 {
			switch sub, op := h[1], binary.BigEndian.Uint16(h[2:]); {
			case sub == 0: // a key
				return 12
			case sub == 1 && op < 2: // sound on, off
				return 4
			case sub == 1 && op == 2: // its format
				return 10
			}
			return unknown
		})
	}
	return fixed(unknown)
}

// complete acts on a message whose size is known: it says whether it may pass,
// and whether it is somebody's doing.
func (c *rfbClient) complete() (pass, input bool) {
	switch c.stage {
	case rfbVersion:
		c.stage = rfbSecurity
	case rfbSecurity:
		c.stage = rfbInit
		if c.head[0] == 2 {
			c.stage = rfbPassword
		}
	case rfbPassword:
		c.stage = rfbInit
	case rfbInit:
		c.stage = rfbMessages
		if c.view {
			c.head[0] = 1
		}
	default:
		if c.listing = c.head[0] == rfbSetEncodings; c.listing {
			c.moreButtons = false // each list replaces the one before
		}
		switch c.head[0] {
		case rfbSetPixelFormat, rfbSetEncodings, rfbFramebufferUpdateRequest, rfbEnableContinuousUpdates, rfbFence:
			return true, false
		case rfbSetDesktopSize: // pages do that by themselves
			return !c.view, false
		}
		return !c.view, !c.view
	}
	return true, false
}
