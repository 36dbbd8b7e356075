package caddymodule

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// masked makes a client's frame; op may have the final bit.
func masked(op byte, payload string) []byte {
	b := []byte{op}
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	default:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	}
	mask := []byte{0x12, 0x34, 0xab, 0xff}
	b = append(b, mask...)
	for i := range len(payload) {
		b = append(b, payload[i]^mask[i%4])
	}
	return b
}

// unmasked takes frames apart with code that shares nothing with the edge's:
// what is the data of each message, and which control frames came.
func unmasked(t *testing.T, b []byte) (messages, control []string) {
	t.Helper()
	open := false
	for len(b) > 0 {
		if len(b) < 6 || b[1]&0x80 == 0 {
			t.Fatalf("not a client's frame: %x", b)
		}
		fin, op, n, at := b[0]&0x80 != 0, b[0]&0x7f, int(b[1]&0x7f), 2
		switch n {
		case 126:
			n, at = int(b[2])<<8|int(b[3]), 4
		case 127:
			n, at = int(binary.BigEndian.Uint64(b[2:])), 10
		}
		mask := b[at : at+4]
		payload := slices.Clone(b[at+4 : at+4+n])
		for i := range payload {
			payload[i] ^= mask[i%4]
		}
		b = b[at+4+n:]
		switch {
		case op >= 8:
			control = append(control, string(rune('0'+op))+string(payload))
			continue
		case op == 0 && open:
			messages[len(messages)-1] += string(payload)
		case op == 1 || op == 2:
			messages = append(messages, string(payload))
		default:
			t.Fatalf("opcode %d", op)
		}
		open = !fin
	}
	return messages, control
}

// through passes bytes through a filter or an observer.
func through(src io.Reader, j judge, filter bool) (out []byte, inputs int, err error) {
	refused := errors.New("refused")
	c := &clientFrames{src: src, judge: j, filter: filter, input: func() { inputs++ }, refuse: func() error { return refused }}
	out, err = io.ReadAll(c)
	return out, inputs, err
}

const (
	rfbHello  = "RFB 003.008\n" + "\x01" + "\x00"
	rfbFormat = "\x00\x00\x00\x00" + "0123456789abcdef"
	rfbEncs   = "\x02\x00\x00\x02" + "\x00\x00\x00\x07" + "\xff\xff\xff\x11"
	rfbFBUR   = "\x03\x01\x00\x00\x00\x00\x00\x10\x00\x10"
	rfbKey    = "\x04\x01\x00\x00\x00\x00\x00A"
	rfbMouse  = "\x05\x01\x00\x10\x00\x10"
	rfbCut    = "\x06\x00\x00\x00\x00\x00\x00\x05hello"
	rfbCutX   = "\x06\x00\x00\x00\xff\xff\xff\xfb\x01\x00\x00\x01x"
	rfbECU    = "\x96\x01\x00\x00\x00\x00\x00\x10\x00\x10"
	rfbSync   = "\xf8\x00\x00\x00\x00\x00\x00\x00\x03abc"
	rfbOff    = "\xfa\x00\x01\x02" // shuts the machine down
	rfbSize   = "\xfb\x00\x00\x10\x00\x10\x01\x00" + "sixteen bytes...."
	rfbQKey   = "\xff\x00\x00\x01\x00\x00\x00A\x00\x00\x00\x1e"
	rfbSound  = "\xff\x01\x00\x02\x00\x01\x00\x00\xac\x44"
)

func TestViewFiltersRFB(t *testing.T) {
	sized := rfbSize[:24] // one screen
	stream := rfbHello + rfbFormat + rfbKey + rfbEncs + rfbFBUR + rfbMouse + rfbCut + rfbECU + rfbCutX + rfbSync + rfbOff + sized + rfbQKey + rfbSound + rfbFBUR
	want := strings.Replace(rfbHello, "\x01\x00", "\x01\x01", 1) + rfbFormat + rfbEncs + rfbFBUR + rfbECU + rfbSync + rfbFBUR
	for _, size := range []int{1, 2, 7, 13, 100, 1000} {
		var in []byte
		for part := range slices.Chunk([]byte(stream), size) {
			in = append(in, masked(0x82, string(part))...)
			in = append(in, masked(0x89, "ping")...)
		}
		for name, src := range map[string]io.Reader{"whole": bytes.NewReader(in), "byte by byte": iotest.OneByteReader(bytes.NewReader(in))} {
			out, _, err := through(src, &rfbClient{view: true}, true)
			if err != nil {
				t.Fatalf("frames of %d, %s: %v", size, name, err)
			}
			messages, control := unmasked(t, out)
			if got := strings.Join(messages, ""); got != want {
				t.Errorf("frames of %d, %s: got %q, want %q", size, name, got, want)
			}
			if len(control) == 0 || control[0] != "9ping" {
				t.Errorf("pings: got %q", control)
			}
		}
	}
}

// A client of the extension for more mouse buttons sends longer messages, from
// the list of encodings that names it to the next that does not.
func TestViewFollowsMoreMouseButtons(t *testing.T) {
	const (
		named   = "\x02\x00\x00\x03" + "\x00\x00\x00\x07" + "\xff\xff\xfe\xc4" + "\xff\xff\xff\x11"
		across  = "\x02\x00\x00\x02" + "\x00\xff\xff\xfe" + "\xc4\x00\x00\x00" // the same bytes, and not the name
		back    = "\x05\x80\x00\x10\x00\x10\x01"
		eighth  = "\x05\x80\x00\x10\x00\x10"
		pointer = "\x05\x01\x00\x10\x00\x10"
	)
	stream := rfbHello + eighth + rfbFBUR + named + back + rfbFBUR + pointer + back + rfbFBUR + across + eighth + rfbFBUR
	want := strings.Replace(rfbHello, "\x01\x00", "\x01\x01", 1) + rfbFBUR + named + rfbFBUR + rfbFBUR + across + rfbFBUR
	for _, size := range []int{1, 2, 3, 7, 1000} {
		var in []byte
		for part := range slices.Chunk([]byte(stream), size) {
			in = append(in, masked(0x82, string(part))...)
		}
		out, _, err := through(bytes.NewReader(in), &rfbClient{view: true}, true)
		if err != nil {
			t.Fatalf("frames of %d: %v", size, err)
		}
		if messages, _ := unmasked(t, out); strings.Join(messages, "") != want {
			t.Errorf("frames of %d: got %q, want %q", size, messages, want)
		}
	}
}

func TestViewRefuses(t *testing.T) {
	rfb := func() judge { return &rfbClient{view: true} }
	tty := func() judge { return &ttyClient{view: true} }
	tests := []struct {
		name  string
		judge func() judge
		in    []byte
	}{
		{"unknown message", rfb, masked(0x82, rfbHello+"\x07")},
		{"input by GII", rfb, masked(0x82, rfbHello+"\xfd")},
		{"old version", rfb, masked(0x82, "RFB 003.003\n")},
		{"other security", rfb, masked(0x82, "RFB 003.008\n\x13")},
		{"large fence", rfb, masked(0x82, rfbHello+"\xf8\x00\x00\x00\x00\x00\x00\x00\x41")},
		{"unknown QEMU message", rfb, masked(0x82, rfbHello+"\xff\x02\x00\x00")},
		{"text", rfb, masked(0x81, rfbHello)},
		{"an extension", rfb, masked(0xc2, rfbHello)},
		{"no mask", rfb, frame(2, 5)},
		{"continuation of nothing", rfb, masked(0x80, rfbHello)},
		{"a message inside another", rfb, append(masked(0x02, rfbHello), masked(0x82, rfbFBUR)...)},
		{"unknown opcode", rfb, masked(0x83, "")},
		{"fragmented ping", rfb, masked(0x09, "")},
		{"unknown terminal message", tty, masked(0x82, "7x")},
		{"endless first message", tty, masked(0x82, "{"+strings.Repeat(" ", 5000))},
	}
	for _, tt := range tests {
		if _, _, err := through(bytes.NewReader(tt.in), tt.judge(), true); err == nil || err.Error() != "refused" {
			t.Errorf("%s: got %v", tt.name, err)
		}
	}
}

func TestViewFiltersTerminal(t *testing.T) {
	hello := `{"AuthToken":"","columns":80,"rows":24}`
	var in []byte
	for _, f := range [][]byte{
		masked(0x81, ""), masked(0x01, hello[:10]), masked(0x89, "p"), masked(0x00, hello[10:]), masked(0x80, ""),
		masked(0x82, "0rm -rf /\r"), masked(0x81, `1{"columns":1,"rows":1}`), masked(0x82, "2"), masked(0x82, "3"),
		masked(0x81, hello), masked(0x02, "0"), masked(0x80, "{"), masked(0x88, "\x03\xe8"),
	} {
		in = append(in, f...)
	}
	for _, src := range []io.Reader{bytes.NewReader(in), iotest.OneByteReader(bytes.NewReader(in))} {
		out, inputs, err := through(src, &ttyClient{view: true}, true)
		if err == nil || err.Error() != "refused" {
			t.Errorf("a second beginning: got %v", err)
		}
		messages, control := unmasked(t, out)
		if len(messages) != 1 || messages[0] != hello {
			t.Errorf("got %q", messages)
		}
		if len(control) != 1 || control[0] != "9p" || inputs != 0 {
			t.Errorf("got %q, %d", control, inputs)
		}
	}
}

func TestWhatIsInput(t *testing.T) {
	rfb := func() judge { return &rfbClient{} }
	tty := func() judge { return &ttyClient{} }
	other := func() judge { return anyData{} }
	tests := []struct {
		name  string
		judge func() judge
		in    []byte
		input bool
	}{
		{"looking on", rfb, masked(0x82, rfbHello+rfbFormat+rfbEncs+rfbFBUR+rfbECU+rfbSync+rfbSize[:24]), false},
		{"a key", rfb, masked(0x82, rfbHello+rfbFBUR+rfbKey), true},
		{"the pointer", rfb, masked(0x82, rfbHello+rfbMouse), true},
		{"the clipboard", rfb, masked(0x82, rfbHello+rfbCutX), true},
		{"a key with its code", rfb, masked(0x82, rfbHello+rfbQKey), true},
		{"what nobody knows", rfb, masked(0x82, "hello"+strings.Repeat("x", 20)), true},
		{"a terminal opens", tty, append(masked(0x81, `{"columns":80}`), masked(0x81, `1{"columns":80}`)...), false},
		{"flow control", tty, append(masked(0x82, "2"), masked(0x82, "3")...), false},
		{"typing", tty, masked(0x82, "0x"), true},
		{"pings", other, append(masked(0x89, "x"), masked(0x8a, "y")...), false},
		{"goodbye", other, masked(0x88, "\x03\xe8"), false},
		{"data", other, masked(0x81, "x"), true},
		{"compressed data", other, masked(0xc1, "x"), true},
		{"no WebSocket at all", other, []byte("hello"), true},
	}
	for _, tt := range tests {
		out, inputs, err := through(iotest.HalfReader(bytes.NewReader(tt.in)), tt.judge(), false)
		if err != nil || !bytes.Equal(out, tt.in) {
			t.Errorf("%s: does not pass unchanged: %v", tt.name, err)
		}
		if (inputs > 0) != tt.input {
			t.Errorf("%s: got %d inputs", tt.name, inputs)
		}
	}
}

// mayLook are the types of the messages that pass in view mode.
const mayLook = "\x00\x02\x03\x96\xf8"

// FuzzViewRFB lets whatever client look on. What the server gets is followed by
// code of its own: the handshake, and nothing but messages that may pass.
func FuzzViewRFB(f *testing.F) {
	f.Add([]byte(rfbHello+rfbFormat+rfbKey+rfbEncs+rfbCutX+rfbSync), uint8(3))
	f.Add([]byte(rfbHello+rfbOff+rfbSize+rfbQKey+rfbSound+rfbFBUR), uint8(200))
	f.Add([]byte("RFB 003.007\n\x020123456789abcdef\x00"+rfbMouse+rfbFBUR), uint8(1))
	f.Fuzz(func(t *testing.T, stream []byte, size uint8) {
		var in []byte
		for part := range slices.Chunk(stream, int(size)+1) {
			in = append(in, masked(0x82, string(part))...)
		}
		out, _, err := through(bytes.NewReader(in), &rfbClient{view: true}, true)
		one, _, err1 := through(iotest.OneByteReader(bytes.NewReader(in)), &rfbClient{view: true}, true)
		messages, _ := unmasked(t, out)
		same, _ := unmasked(t, one)
		got := strings.Join(messages, "")
		if got != strings.Join(same, "") || (err == nil) != (err1 == nil) {
			t.Fatalf("the pieces it comes in matter: %q, %v and %q, %v", got, err, same, err1)
		}
		if len(got) < 13 {
			return
		}
		rest := got[13:]
		if got[12] == 2 {
			rest = rest[min(16, len(rest)):]
		}
		if len(rest) > 0 && rest[0] != 1 {
			t.Fatalf("throws others out: %q", got)
		}
		rest = rest[min(1, len(rest)):]
		for len(rest) > 0 {
			if strings.IndexByte(mayLook, rest[0]) < 0 {
				t.Fatalf("passed %q in %q", rest, got)
			}
			n := map[byte]int{0: 20, 3: 10, 0x96: 10}[rest[0]]
			switch {
			case rest[0] == 2 && len(rest) >= 4:
				n = 4 + 4*(int(rest[2])<<8|int(rest[3]))
			case rest[0] == 0xf8 && len(rest) >= 9:
				n = 9 + int(rest[8])
			case n == 0:
				n = len(rest)
			}
			rest = rest[min(n, len(rest)):]
		}
	})
}

// FuzzClientFrames feeds whatever bytes, as an attacker may.
func FuzzClientFrames(f *testing.F) {
	f.Add(append(masked(0x01, "{}"), masked(0x80, "x")...))
	f.Add(masked(0x82, rfbHello+rfbKey))
	f.Add([]byte{0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, j := range []func() judge{func() judge { return &rfbClient{} }, func() judge { return &ttyClient{} }, func() judge { return anyData{} }} {
			if out, _, err := through(bytes.NewReader(in), j(), false); err != nil || !bytes.Equal(out, in) {
				t.Fatalf("%T changes what passes: %v", j(), err)
			}
		}
		out, _, _ := through(bytes.NewReader(in), &ttyClient{view: true}, true)
		messages, _ := unmasked(t, out)
		if len(messages) > 1 || len(messages) == 1 && !strings.HasPrefix(messages[0], "{") {
			t.Fatalf("a looker-on says %q", messages)
		}
	})
}

// FuzzFrameWriter writes whatever bytes in whatever pieces, and a close frame of
// the edge's in between.
func FuzzFrameWriter(f *testing.F) {
	f.Add(append(frame(2, 200), frame(1, 3)...), uint16(7), uint16(150))
	f.Add(append(frame(1, 0), frame(8, 2)...), uint16(1), uint16(2))
	f.Fuzz(func(t *testing.T, stream []byte, size, at uint16) {
		var out bytes.Buffer
		w := newFrameWriter(out.Write, noDeadline)
		written := 0
		caddys := closeFrame(closeGoingAway, "")
		closed := false
		for part := range slices.Chunk(stream, int(size)+1) {
			if !closed && written >= int(at) {
				closed = true
				if _, err := w.Write(caddys); err != nil && !errors.Is(err, errStreamClosed) {
					t.Fatal(err)
				}
			}
			if _, err := w.Write(part); err != nil {
				break
			}
			written += len(part)
		}
		got := out.Bytes()
		if !closed {
			// After a close frame of the guest's own nothing has to pass.
			if !bytes.HasPrefix(stream, got) || len(got) < len(stream) && !w.over {
				t.Fatal("changes what passes")
			}
			return
		}
		// Whatever came before the edge's frame is a beginning of the stream.
		if body, ok := bytes.CutSuffix(got, caddys); ok && bytes.HasPrefix(stream, body) {
			return
		}
		if !bytes.HasPrefix(stream, got) {
			t.Fatalf("got %x of %x", got, stream)
		}
	})
}
