package terminal

import (
	"bytes"
	"regexp"
	"unicode/utf8"
)

// scrollback keeps the newest bytes of a shell's output. Offsets count from
// the first byte ever written, so that each viewer can read at its own pace
// and see whether it was overtaken.
type scrollback struct {
	buf []byte // a ring
	end int64  // offset after the newest byte
}

func newScrollback(size int) *scrollback { return &scrollback{buf: make([]byte, size)} }

// start is the offset of the oldest byte kept.
func (s *scrollback) start() int64 { return max(0, s.end-int64(len(s.buf))) }

func (s *scrollback) write(p []byte) {
	if skip := len(p) - len(s.buf); skip > 0 {
		s.end += int64(skip)
		p = p[skip:]
	}
	at := int(s.end % int64(len(s.buf)))
	n := copy(s.buf[at:], p)
	copy(s.buf, p[n:])
	s.end += int64(len(p))
}

// read copies what follows offset, which must not be before start.
func (s *scrollback) read(p []byte, offset int64) int {
	if left := s.end - offset; int64(len(p)) > left {
		p = p[:left]
	}
	at := int(offset % int64(len(s.buf)))
	n := copy(p, s.buf[at:])
	return n + copy(p[n:], s.buf)
}

// replay is what shows the terminal to one who joins it.
func (s *scrollback) replay() []byte {
	p := make([]byte, s.end-s.start())
	s.read(p, s.start())
	if s.start() > 0 {
		p = cutSafely(p)
	}
	return append([]byte(reset), unasked(p)...)
}

// reset puts a terminal back to its first state, whatever it showed before.
const reset = "\x1bc"

// cutSafely drops the broken first line, so that p begins neither inside a
// character nor inside an escape sequence. Output without lines, as of a
// full-screen program, begins at its first whole character.
func cutSafely(p []byte) []byte {
	if i := bytes.IndexByte(p, '\n'); i >= 0 && i < len(p)/2 {
		return p[i+1:]
	}
	for len(p) > 0 && !utf8.RuneStart(p[0]) {
		p = p[1:]
	}
	return p
}

// questions are the sequences that a terminal answers as if somebody typed:
// device attributes and status, modes, window reports, colours, terminfo.
var questions = regexp.MustCompile(`\x1b\[[>=?]?[0-9;]*[cn]` +
	`|\x1b\[\??[0-9;]*\$p` +
	`|\x1b\[(?:1[1-9]|2[01])(?:;[0-9;]*)?t` +
	`|\x1b\[>[0-9;]*q` +
	`|\x1b\[\?u` +
	`|\x1b\][0-9;]*;\?(?:\x07|\x1b\\)` +
	`|\x1bP[+$]q[^\x1b]*\x1b\\`)

// unasked takes the questions out of old output. They were answered when they
// were asked; a second answer would appear at the shell's prompt.
func unasked(p []byte) []byte { return questions.ReplaceAll(p, nil) }

// answers are a terminal's replies to questions. F3 with a modifier looks like
// the position report and is told apart by its row, which is 1.
var answers = regexp.MustCompile(`^(?:\x1b\[[>?][0-9;]*c|\x1b\[[0-9;]*n` +
	`|\x1b\[\??(?:[2-9]|[1-9][0-9]+);[0-9]+R` +
	`|\x1b\[\??[0-9;]*\$y|\x1b\[[0-9;]*t|\x1b\][0-9;]*;[^\x07\x1b]*(?:\x07|\x1b\\)|\x1bP[^\x1b]*\x1b\\)+$`)

// isAnswer says whether input is a terminal's reply and nobody's typing.
func isAnswer(input []byte) bool { return answers.Match(input) }
