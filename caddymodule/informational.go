package caddymodule

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"strings"

	"github.com/cubeplexai/cubepod/internal/apierror"
)

// untraced is a context without the hooks by which reverse_proxy hears of a
// guest's informational responses and passes them on. Nobody needs those: the
// server itself says 100 to a client that waits for it, and hints (103) would
// get past the cleaning of headers. Without a hook net/http also bounds how many
// of them it takes.
type untraced struct{ context.Context }

// Value gives all but the hooks.
func (c untraced) Value(key any) any {
	v := c.Context.Value(key)
	if _, ok := v.(*httptrace.ClientTrace); ok {
		return nil
	}
	return v
}

// errSenseless is for what a guest says that is no answer to what was asked.
var errSenseless = apierror.New(apierror.BadGateway, "upstream_failed", "the sandbox's answer makes no sense")

// isFinal reports whether resp may be passed on as the answer to a request with
// the given header. net/http takes any three characters that make a number for
// a status, and a server panics over those below 100. A 101 is an answer only to
// who asked for that very protocol.
func isFinal(resp *http.Response, asked http.Header) bool {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		protocol := resp.Header.Get("Upgrade")
		return protocol != "" && hasToken(asked["Connection"], "upgrade") && strings.EqualFold(protocol, asked.Get("Upgrade"))
	}
	return resp.StatusCode >= 200 && resp.StatusCode <= 999
}
