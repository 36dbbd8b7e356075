package text_test

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cubeplexai/cubepod/podd/text"
)

func TestEncode(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "aé汉😀": "aé汉😀", "\xff": "\uFFFD", "a\x00b": "a\x00b", "\xe6\xb1": "\uFFFD", "a\xed\xa0\x80": "a\uFFFD", // a surrogate
	} {
		s, b64 := text.Encode([]byte(in))
		if s != want || (b64 == "") != utf8.ValidString(in) {
			t.Errorf("%q: got %q, %q", in, s, b64)
		}
		if raw, _ := base64.StdEncoding.DecodeString(b64); b64 != "" && string(raw) != in {
			t.Errorf("%q: got %q", in, raw)
		}
	}
}

func TestWhole(t *testing.T) {
	for in, want := range map[string]int{
		"": 0, "a": 1, "aé": 3, "a\xc3": 1, "\xe6\xb1": 0, "x\xf0\x9f\x98": 1, "\xf0\x9f\x98\x80": 4,
		// Bytes that can never become a character.
		"\xff": 1, "\xc0": 1, "a\xc0\x80": 3, "\x80\x80\x80\x80": 4, "\xf5\x80": 2, "\xed\xa0": 2,
	} {
		if got := text.Whole([]byte(in)); got != want {
			t.Errorf("%q: got %d, want %d", in, got, want)
		}
	}
}

func TestEncodePiece(t *testing.T) {
	for name, c := range map[string]struct {
		before, p, want string
		lostBefore      bool
		lostBehind      bool
	}{
		"inside a character":             {"a\xe6", "\xb1\x89b", "b", false, false},
		"all of it inside":               {"\xf0\x9f", "\x98", "", false, false},
		"its end":                        {"\xf0\x9f\x98", "\x80", "", false, false},
		"no character":                   {"a", "\xb1b", "\uFFFDb", false, false},
		"broken before":                  {"\xff", "\xb1b", "\uFFFDb", false, false},
		"behind a gap":                   {"", "\x98\x80b", "b", true, false},
		"before a gap":                   {"", "b\xf0\x9f", "b", false, true},
		"a broken character":             {"a", "b\xf0\x9f", "b\uFFFD", false, false},
		"more than one could be torn of": {"", "\x80\x80\x80\x80b", "\uFFFDb", true, false},
	} {
		s, b64 := text.EncodePiece([]byte(c.p), []byte(c.before), c.lostBefore, c.lostBehind)
		if raw, _ := base64.StdEncoding.DecodeString(b64); s != c.want || string(raw) != c.p {
			t.Errorf("%s: got %q, %q", name, s, raw)
		}
	}
}

// FuzzCut reads a stream in pieces as podd's clients do: from any offset, in
// steps of any size, cut at characters. No byte is lost, nothing is held back
// for ever, and valid text never turns into U+FFFD.
func FuzzCut(f *testing.F) {
	f.Add([]byte("aé汉😀z"), uint8(2), uint8(5))
	f.Add([]byte("\xc0\xff\xf0\x9f\x98"), uint8(0), uint8(4))
	f.Add([]byte("\xf0\x9f\x98\x80\xf0\x9f\x98\x80"), uint8(1), uint8(1))
	f.Fuzz(func(t *testing.T, stream []byte, start, step uint8) {
		at := min(int(start), len(stream))
		size := max(int(step), utf8.UTFMax)
		var got []byte
		for at < len(stream) {
			p := stream[at:min(at+size, len(stream))]
			if end := at + len(p); end < len(stream) {
				p = p[:text.Whole(p)]
			}
			if len(p) == 0 {
				t.Fatalf("nothing comes at %d of %q", at, stream)
			}
			s, b64 := text.EncodePiece(p, stream[max(0, at-3):at], false, false)
			if utf8.Valid(stream) && strings.Contains(s, "\uFFFD") && !bytes.Contains(stream, []byte("\uFFFD")) {
				t.Fatalf("from %d: %q becomes %q", at, p, s)
			}
			if !utf8.ValidString(s) {
				t.Fatalf("%q is no text", s)
			}
			if b64 == "" && s != string(p) {
				t.Fatalf("%q becomes %q", p, s)
			}
			if b64 != "" {
				raw, err := base64.StdEncoding.DecodeString(b64)
				if err != nil || !bytes.Equal(raw, p) {
					t.Fatalf("%q becomes %q", p, raw)
				}
			}
			got = append(got, p...)
			at += len(p)
		}
		if want := stream[min(int(start), len(stream)):]; !bytes.Equal(got, want) {
			t.Fatalf("got %q of %q", got, want)
		}
	})
}
