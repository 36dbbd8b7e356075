package paneltoken

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"time"
)

// members calls f with each member of the JSON object doc, its key without
// quotes and its value as they are written. It needs no memory, which is why
// encoding/json, though it checks the form, does not read tokens here.
func members(doc []byte, f func(key, value []byte) error) error {
	doc = bytes.Trim(doc, space)
	if !json.Valid(doc) || doc[0] != '{' {
		return errMalformed
	}
	for rest := doc[1:]; ; {
		rest = bytes.TrimLeft(rest, space+",")
		if rest[0] == '}' {
			return nil
		}
		end := valueEnd(rest)
		key := rest[1 : end-1]
		rest = bytes.TrimLeft(rest[end:], space+":")
		end = valueEnd(rest)
		if err := f(key, rest[:end]); err != nil {
			return err
		}
		rest = rest[end:]
	}
}

// space is JSON's white space.
const space = " \t\r\n"

// valueEnd gives the length of the value that valid JSON goes on with.
func valueEnd(b []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
			if !quoted && depth == 0 {
				return i + 1
			}
		case quoted:
		case c == '{', c == '[':
			depth++
		case depth > 0 && (c == '}' || c == ']'):
			if depth--; depth == 0 {
				return i + 1
			}
		case depth == 0 && (c == ',' || c == '}' || c == ']' || bytes.IndexByte([]byte(space), c) >= 0):
			return i
		}
	}
	return len(b)
}

// text is a JSON string that keeps its memory when it is read again.
type text struct {
	bytes []byte
	set   bool
}

func (t *text) reset() { t.bytes, t.set = t.bytes[:0], false }

var errNoText = errors.New("not a text")

// read reads a string.
func (t *text) read(b []byte) error {
	t.set = true
	if b[0] != '"' {
		return errNoText
	}
	inner := b[1 : len(b)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		t.bytes = append(t.bytes[:0], inner...)
		return nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return errNoText
	}
	t.bytes = append(t.bytes[:0], s...)
	return nil
}

// String gives a copy.
func (t *text) String() string { return string(t.bytes) }

// number is a JSON number that needs no memory of its own.
type number struct {
	value         int64 // without its fraction
	fraction, set bool
}

// maxNumber bounds what is read; as a time it is the end of the year 9999.
const maxNumber = 253402300799

var errNoNumber = errors.New("not a number within bounds")

// read reads a number. Others may write a time as 1.7e9, or with a fraction,
// which is for who uses it to refuse.
func (n *number) read(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	*n = number{set: true}
	for _, c := range b {
		if c < '0' || c > '9' {
			return n.float(b)
		}
		if n.value = n.value*10 + int64(c-'0'); n.value > maxNumber {
			return errNoNumber
		}
	}
	return nil
}

func (n *number) float(b []byte) error {
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil || f < 0 || f > maxNumber {
		return errNoNumber
	}
	n.value = int64(f)
	n.fraction = float64(n.value) != f
	return nil
}

// time gives the number as a time in seconds, the zero time where it is absent.
func (n *number) time() time.Time {
	if !n.set {
		return time.Time{}
	}
	return time.Unix(n.value, 0)
}
