package caddymodule

import (
	"net/http"
	"slices"
)

// hiddenHeaders are headers whose values hold tokens. reverse_proxy logs all
// headers of a request and its response in between, at debug level, so there
// they stand redacted; guest and client see them as they are.
type hiddenHeaders struct{ request, response http.Header }

// hide redacts the values of h and gives what they were, nil if there was
// nothing to hide.
func hide(h http.Header) (was http.Header) {
	for name, values := range h {
		for i, v := range values {
			clean := redact(v)
			if len(clean) == len(v) && clean == v {
				continue
			}
			if was[name] == nil {
				if was == nil {
					was = http.Header{}
				}
				was[name] = slices.Clone(values)
				h[name] = slices.Clone(values) // others may hold the same slice
			}
			h[name][i] = clean
		}
	}
	return was
}

// restore undoes hide, where nobody changed the value since.
func restore(h, was http.Header) {
	for name, values := range was {
		if now := h[name]; len(now) == len(values) {
			for i := range values {
				if now[i] == redact(values[i]) {
					now[i] = values[i]
				}
			}
		}
	}
}
