package caddymodule

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/cubeplexai/cubepod/internal/apierror"
)

// limits bound what one sandbox and one client may take; 0 is no bound.
type limits struct {
	perSandbox, perClient int // requests and streams under way
	failures              int // refused tokens in a minute
}

var (
	errSandboxBusy = tooMany("too_many_requests", "too many connections to this sandbox are open")
	errClientBusy  = tooMany("too_many_requests", "too many connections from your address are open")
	errFailures    = tooMany("too_many_failures", "too many links that are not valid came from your address")
)

func tooMany(code, detail string) *apierror.Error {
	return &apierror.Error{Kind: apierror.TooMany, Code: code, Detail: detail, RetryAfter: 5 * time.Second}
}

// clientKey names who sent r: the address that Caddy, which knows the trusted
// proxies, holds for the client's. Of IPv6 it is the network, which one client
// has for himself.
func clientKey(r *http.Request) netip.Prefix {
	s, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	ip, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Prefix{}
	}
	bits := 32
	if ip = ip.Unmap().WithZone(""); ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits)
	return p
}

// maxFailing bounds the clients whose failures are counted.
const maxFailing = 1 << 16

// failures counts the refused tokens of each client, minute by minute. It
// slows nobody down who has a good one.
type failures struct {
	mu     sync.Mutex // guards the fields below
	minute time.Time
	counts map[netip.Prefix]int
}

// add counts a failure, and reports whether there were more than limit.
func (f *failures) add(client netip.Prefix, limit int) bool {
	if limit <= 0 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.minute) >= time.Minute {
		f.minute, f.counts = now, map[netip.Prefix]int{}
	}
	if len(f.counts) >= maxFailing {
		if _, ok := f.counts[client]; !ok {
			return false
		}
	}
	f.counts[client]++
	return f.counts[client] > limit
}
