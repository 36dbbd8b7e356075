// Package text cuts a byte stream into pieces for JSON, which carries text
// only, so that no character is torn and no byte is lost.
package text

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// Encode gives p as JSON carries it: as text, where U+FFFD stands for what is
// no UTF-8, and then in base64 too, so that no byte is lost.
func Encode(p []byte) (s, b64 string) {
	if utf8.Valid(p) {
		return string(p), ""
	}
	return strings.ToValidUTF8(string(p), "\uFFFD"), base64.StdEncoding.EncodeToString(p)
}

// EncodePiece is [Encode] for a piece that may begin or end inside a
// character. What is there of such a character is not in the text form. before
// are the up to three bytes in front of the piece, as far as they are known;
// torn says that what is in front, or behind, is lost.
func EncodePiece(p, before []byte, tornBefore, tornBehind bool) (s, b64 string) {
	if utf8.Valid(p) {
		return string(p), ""
	}
	inner := p[rest(before, p, tornBefore):]
	if tornBehind {
		inner = inner[:Whole(inner)]
	}
	return strings.ToValidUTF8(string(inner), "\uFFFD"), base64.StdEncoding.EncodeToString(p)
}

// Whole gives the length of p without a character at its end that more bytes
// may complete. Bytes that can never become one are not held back.
func Whole(p []byte) int {
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

// rest gives the number of bytes at p's beginning that are the rest of a
// character which began in before, or where that is lost may be one.
func rest(before, p []byte, lost bool) int {
	n := 0
	for n < len(p) && n < utf8.UTFMax-1 && !utf8.RuneStart(p[n]) {
		n++
	}
	if lost || n == 0 {
		return n
	}
	begun := before[Whole(before):]
	if len(begun) == 0 {
		return 0
	}
	joined := append(begun[:len(begun):len(begun)], p[:min(len(p), utf8.UTFMax-1)]...)
	r, size := utf8.DecodeRune(joined)
	if r == utf8.RuneError && size <= 1 {
		if !utf8.FullRune(joined) { // p ends before the character does
			return len(p)
		}
		return 0
	}
	return size - len(begun)
}
