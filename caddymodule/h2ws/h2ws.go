// Package h2ws switches on WebSockets over HTTP/2 (RFC 8441) for the process
// that links it.
//
// Go's HTTP/2 server can do them and Caddy translates them, but the server
// offers them only where GODEBUG said so before net/http was initialised. Go
// initialises packages in the order of their paths once what they import is
// ready, so this one, which imports next to nothing, comes before net/http. An
// operator's own http2xconnect setting stays as it is.
package h2ws

import (
	"os"
	"strings"
)

const setting = "http2xconnect"

func init() {
	was := os.Getenv("GODEBUG")
	if strings.Contains(was, setting) {
		return
	}
	now := setting + "=1"
	if was != "" {
		now = was + "," + now
	}
	_ = os.Setenv("GODEBUG", now) // fails for a name or value that no environment can hold
}
