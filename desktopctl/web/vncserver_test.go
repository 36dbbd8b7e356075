package web_test

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// The extended clipboard's words, in the flags of a message.
const (
	clipText    = 1
	clipCaps    = 1 << 24
	clipRequest = 1 << 25
	clipPeek    = 1 << 26
	clipNotify  = 1 << 27
	clipProvide = 1 << 28
)

// vncServer is a VNC server that keeps what it is told. It offers the extended
// clipboard, as both TigerVNC and x11vnc's library do.
type vncServer struct {
	t       *testing.T
	cut     chan string  // what it is given to paste
	viewers atomic.Int32 // that have got as far as a picture

	mu     sync.Mutex // guards the fields below
	typed  strings.Builder
	held   map[uint32]bool // keys that are down
	clicks []int           // where the pointer was with a button down, from the left
}

func newVNCServer(t *testing.T) *vncServer {
	return &vncServer{t: t, cut: make(chan string, 100), held: make(map[uint32]bool)}
}

func (s *vncServer) dial(context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	s.t.Cleanup(func() { far.Close() })
	go s.serve(far)
	return near, nil
}

// key takes a key's press or release. What keys typed is kept as text: the
// characters, and other keys by their symbol's number.
func (s *vncServer) key(down bool, symbol uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !down {
		delete(s.held, symbol)
		return
	}
	s.held[symbol] = true
	switch {
	case symbol < 0x100:
		s.typed.WriteRune(rune(symbol))
	case symbol>>24 == 1:
		s.typed.WriteRune(rune(symbol & 0xffffff))
	default:
		fmt.Fprintf(&s.typed, "<%x>", symbol)
	}
}

// taken gives what was typed since the last time, and how many keys are down.
func (s *vncServer) taken() (string, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.typed.Reset()
	return s.typed.String(), len(s.held)
}

// clicked says where the pointer was seen with a button down, from the left.
func (s *vncServer) clicked() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.clicks)
}

func (s *vncServer) serve(conn net.Conn) {
	defer conn.Close()
	read := func(n int) []byte {
		p := make([]byte, n)
		if _, err := io.ReadFull(conn, p); err != nil {
			return nil
		}
		return p
	}
	extended := func(flags uint32, data ...byte) {
		msg := binary.BigEndian.AppendUint32([]byte{3, 0, 0, 0}, uint32(-int32(4+len(data))))
		_, _ = conn.Write(append(binary.BigEndian.AppendUint32(msg, flags), data...))
	}
	io.WriteString(conn, "RFB 003.008\n")
	read(12)
	conn.Write([]byte{1, 1}) // one way to log in, without a password
	read(1)
	conn.Write([]byte{0, 0, 0, 0})
	read(1)
	conn.Write(append([]byte{2, 128, 1, 224, 32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0, 0, 0, 0, 0, 0, 0, 4}, "test"...))
	extended(clipCaps|clipRequest|clipPeek|clipNotify|clipProvide|clipText, 0, 16, 0, 0)
	s.viewers.Add(1)
	rest := map[byte]int{0: 19, 3: 9} // messages of one length
	for {
		kind := read(1)
		if kind == nil {
			return
		}
		switch kind[0] {
		case 2:
			head := read(3)
			if head == nil || read(4*int(binary.BigEndian.Uint16(head[1:]))) == nil {
				return
			}
		case 4:
			body := read(7)
			if body == nil {
				return
			}
			s.key(body[0] != 0, binary.BigEndian.Uint32(body[3:]))
		case 5:
			body := read(5)
			if body == nil {
				return
			}
			if body[0] != 0 {
				s.mu.Lock()
				s.clicks = append(s.clicks, int(binary.BigEndian.Uint16(body[1:])))
				s.mu.Unlock()
			}
		case 6:
			head := read(7)
			if head == nil {
				return
			}
			n := int32(binary.BigEndian.Uint32(head[3:]))
			body := read(int(max(n, -n)))
			if body == nil {
				return
			}
			if n >= 0 {
				s.cut <- "latin-1: " + string(body)
				continue
			}
			switch flags := binary.BigEndian.Uint32(body); {
			case flags&clipNotify != 0:
				extended(clipRequest | clipText)
			case flags&clipProvide != 0:
				z, err := zlib.NewReader(bytes.NewReader(body[4:]))
				if err != nil {
					return
				}
				text, _ := io.ReadAll(z)
				s.cut <- "unicode: " + strings.TrimRight(string(text[min(4, len(text)):]), "\x00")
			}
		default:
			n, ok := rest[kind[0]]
			if !ok || read(n) == nil {
				return
			}
		}
	}
}
