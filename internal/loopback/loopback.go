// Package loopback guards HTTP servers on a guest's loopback interface.
//
// The guest's own browser visits strange pages, and a page can send requests
// to 127.0.0.1. So a guarded server answers clients that send no Origin (tools
// in the guest) or its own, http://127.0.0.1:<port> (the edge and podd's
// tunnel send that), under a Host that is loopback. DNS names that resolve to
// loopback are refused with the rest.
package loopback

import (
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/cubeplexai/cubepod/internal/apierror"
)

// Guard lets through to next what a server on port may answer and refuses the
// rest with 403.
func Guard(port int, next http.Handler) http.Handler {
	own := Origin(port)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !isLoopback(r.Host):
			apierror.Write(w, apierror.New(apierror.Forbidden, "host_refused", "this port answers loopback hosts only"))
		case !originAllowed(r.Header.Values("Origin"), own), crossSite(r):
			apierror.Write(w, apierror.New(apierror.Forbidden, "origin_refused", "this port answers no web page but its own"))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// Host is the Host header a guarded server on port expects.
func Host(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// Origin is the one Origin a guarded server on port answers.
func Origin(port int) string { return "http://" + Host(port) }

func originAllowed(origins []string, own string) bool {
	for _, o := range origins {
		if o != own {
			return false
		}
	}
	return true
}

// crossSite tells a page's request that carries no Origin, such as an image, a
// script or a link, from a tool's, which has no Sec-Fetch headers. A person may
// open the address himself ("none").
func crossSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return false
	}
	return true
}

func isLoopback(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil && ip.IsLoopback()
}
