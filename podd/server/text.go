package server

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// text gives p as JSON carries it: as text, where U+FFFD stands for what is no
// UTF-8, and then in base64 too, so that no byte is lost.
func text(p []byte) (s, b64 string) {
	if utf8.Valid(p) {
		return string(p), ""
	}
	return strings.ToValidUTF8(string(p), "\uFFFD"), base64.StdEncoding.EncodeToString(p)
}

// whole gives the length of p without a character at its end that more bytes
// may complete. Bytes that can never become one are not held back.
func whole(p []byte) int {
	for i := len(p) - 1; i >= 0 && i >= len(p)-utf8.UTFMax; i-- {
		if utf8.RuneStart(p[i]) {
			if !utf8.FullRune(p[i:]) {
				return i
			}
			break
		}
	}
	return len(p)
}
