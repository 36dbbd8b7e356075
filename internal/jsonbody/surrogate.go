package jsonbody

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// loneSurrogate reports whether a JSON text escapes half of a surrogate pair.
func loneSurrogate(data []byte) bool {
	for {
		i := bytes.IndexByte(data, '\\')
		if i < 0 || i+1 >= len(data) {
			return false
		}
		data = data[i:]
		r, ok := escapedUnit(data)
		switch {
		case !ok:
			data = data[2:] // another escape, such as \\ or \n
			continue
		case utf16.IsSurrogate(r):
			next, ok := escapedUnit(data[6:])
			if !ok || utf16.DecodeRune(r, next) == utf8.RuneError {
				return true
			}
			data = data[12:]
		default:
			data = data[6:]
		}
	}
}

// escapedUnit reads \uXXXX at the beginning of data.
func escapedUnit(data []byte) (rune, bool) {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	return rune(n), err == nil
}
