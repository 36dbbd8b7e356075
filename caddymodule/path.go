package caddymodule

import (
	"net/http"
	"net/url"
	"strings"
)

// panelPath is a request's target, taken apart: /panel/{token}/rest?query.
type panelPath struct {
	prefix string // "/panel/{token}"
	token  string
	rest   string // with its leading slash, and the query; "" when the slash is missing
}

// splitPanelPath takes uri apart, byte for byte. It reports false for what is
// not under prefix exactly: an encoded or upper-case spelling is another path.
func splitPanelPath(uri, prefix string) (panelPath, bool) {
	tail, ok := strings.CutPrefix(uri, prefix+"/")
	if !ok {
		return panelPath{}, false
	}
	end := strings.IndexAny(tail, "/?")
	if end < 0 {
		end = len(tail)
	}
	p := panelPath{token: tail[:end], prefix: prefix + "/" + tail[:end], rest: tail[end:]}
	return p, true
}

// slash gives the redirect that adds a missing slash, relative to the
// request's path, so that it is right whatever is in front of the edge. The
// token's characters need no escaping; others never get this far.
func (p panelPath) slash() (location string, missing bool) {
	if strings.HasPrefix(p.rest, "/") {
		return "", false
	}
	return p.token + "/" + p.rest, true
}

// originForm gives the request's target as path and query, whichever form the
// client used.
func originForm(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		return r.RequestURI
	}
	return r.URL.RequestURI()
}

// retarget points r at the guest's path.
func retarget(r *http.Request, rest string) error {
	if !strings.HasPrefix(rest, "/") {
		rest = "/" + rest
	}
	u, err := url.ParseRequestURI(rest) // takes "//" for a path, as a server does
	if err != nil {
		return err
	}
	r.URL.Path, r.URL.RawPath, r.URL.RawQuery, r.URL.ForceQuery = u.Path, u.RawPath, u.RawQuery, u.ForceQuery
	r.URL.Opaque, r.URL.Fragment, r.URL.RawFragment = "", "", ""
	r.RequestURI = rest
	return nil
}
