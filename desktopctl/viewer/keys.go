package viewer

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/cubeplexai/cubepod/internal/apierror"
)

const (
	// maxKeys is more than a page asks for at once, and fewer than there are.
	maxKeys = 64
	// keysLimit is enough for that many numbers.
	keysLimit = 4 << 10
)

// keys takes a list of keysyms that are about to be pressed and answers when
// each has a key.
//
// A VNC server gives a character that the layout lacks a key in the moment in
// which it presses it, and a browser that has not read the new map yet types
// what the key was before, or nothing.
func (v *Viewer) keys(w http.ResponseWriter, r *http.Request) {
	var symbols []uint32
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, keysLimit)).Decode(&symbols); err != nil {
		apierror.Write(w, apierror.Wrap(err, apierror.Invalid, "invalid_keys", "want a list of keysyms: %v", err))
		return
	}
	if len(symbols) > maxKeys || slices.ContainsFunc(symbols, func(s uint32) bool { return !types(s) }) {
		apierror.Write(w, apierror.New(apierror.Invalid, "invalid_keys", "want at most %d keysyms, all of characters", maxKeys))
		return
	}
	if err := v.opts.Keys(r.Context(), symbols); err != nil {
		apierror.Write(w, apierror.Wrap(err, apierror.Unavailable, "no_keys", "the display gives no keys"))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// types says whether a keysym is that of a character: Latin-1, one of the old
// sets by language, or Unicode.
func types(symbol uint32) bool {
	const oldSets, unicode, last = 0xfd00, 0x1000100, 0x110ffff
	return symbol >= ' ' && symbol < oldSets || symbol >= unicode && symbol <= last
}
