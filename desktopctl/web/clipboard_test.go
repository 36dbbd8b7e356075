package web_test

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubeplexai/cubepod/desktopctl/viewer"
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

// clipboardServer is a VNC server that offers the extended clipboard, as both
// TigerVNC and x11vnc's library do, and gives what it is sent to cut.
func clipboardServer(t *testing.T) (dial func(context.Context) (net.Conn, error), cut <-chan string) {
	texts := make(chan string, 100)
	return func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		t.Cleanup(func() { far.Close() })
		go serveClipboard(far, texts)
		return near, nil
	}, texts
}

func serveClipboard(conn net.Conn, texts chan<- string) {
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
	rest := map[byte]int{0: 19, 3: 9, 4: 7, 5: 5} // messages of one length
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
				texts <- "latin-1: " + string(body)
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
				texts <- "unicode: " + strings.TrimRight(string(text[min(4, len(text)):]), "\x00")
			}
		default:
			n, ok := rest[kind[0]]
			if !ok || read(n) == nil {
				return
			}
		}
	}
}

// What is pasted arrives whole where the server can take it, and readable where
// it cannot.
func TestViewerPageClipboard(t *testing.T) {
	const text = "é 汉字 😀"
	for unicode, want := range map[bool]string{true: "unicode: é 汉字 😀", false: "latin-1: \xe9 ?? ?"} {
		t.Run(want[:7], func(t *testing.T) {
			dial, cut := clipboardServer(t)
			v := viewer.New(viewer.Options{WebDir: filepath.Join(pages(t), "viewer"), RFB: dial, Unicode: unicode})
			t.Cleanup(func() { v.Close() })
			tb := newEdge(t, 8080, v).browse(t, "")
			tb.until(`document.querySelector("canvas")?.width`, "640")
			tb.paste(text)
			select {
			case got := <-cut:
				if got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			case <-tb.ctx.Done():
				t.Error("nothing arrives")
			}
		})
	}
}
