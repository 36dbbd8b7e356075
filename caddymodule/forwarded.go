package caddymodule

import (
	"net/http"
	"slices"
	"strings"
)

// proxyHeaders are those that reverse_proxy sets itself: it believes the
// client's only where Caddy's trusted_proxies says so.
var proxyHeaders = []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// otherProxyHeaders are further ones by which proxies tell where a request came
// from and what it asked for. Some frameworks believe them.
var otherProxyHeaders = []string{"Forwarded", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "X-Original-Url", "X-Rewrite-Url"}

// dropForwarded takes out of a request what only a proxy may say, and this one
// does not.
func dropForwarded(h http.Header) {
	for name := range h {
		if strings.HasPrefix(name, "X-Forwarded-") && !slices.Contains(proxyHeaders, name) || slices.Contains(otherProxyHeaders, name) {
			delete(h, name)
		}
	}
}
