package caddymodule

import (
	"net/url"
	"strconv"
	"strings"
)

// rebaser turns addresses that a guest gives out into addresses under the
// panel's path. What is rebased already stays as it is.
type rebaser struct {
	prefix string // "/panel/{token}"
	host   string // by which the client knows the panel
	target *target
}

// known reports whether host is one by which client or guest know the panel.
func (b rebaser) known(host string) bool {
	if strings.EqualFold(host, b.host) {
		return true
	}
	if b.target == nil {
		return false
	}
	name, port, ok := strings.Cut(strings.ToLower(host), ":")
	return ok && (name == "127.0.0.1" || name == "localhost") && port == strconv.Itoa(b.target.port) ||
		b.target.direct.IsValid() && host == b.target.direct.String()
}

// location rebases a reference as Location has it: a path of the guest's, or
// an absolute URL of the panel's or the guest's host. Relative references and
// other hosts are left alone.
func (b rebaser) location(ref string) string {
	if rest, ok := strings.CutPrefix(ref, "//"); ok {
		return b.ownHost(ref, rest)
	}
	if scheme, rest, ok := strings.Cut(ref, "://"); ok && (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https")) {
		return b.ownHost(ref, rest)
	}
	if strings.HasPrefix(ref, "/") {
		return b.path(ref)
	}
	return ref
}

// ownHost rebases ref, whose part after the slashes is rest, if its host is one
// of ours.
func (b rebaser) ownHost(ref, rest string) string {
	end := strings.IndexAny(rest, "/?#\\")
	if end < 0 {
		end = len(rest)
	}
	if !b.known(rest[:end]) {
		return ref
	}
	path := rest[end:]
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return b.path(path)
}

func (b rebaser) path(p string) string {
	if tail, ok := strings.CutPrefix(p, b.prefix); ok && (tail == "" || strings.ContainsAny(tail[:1], "/?#")) {
		return p
	}
	return b.prefix + p
}

// refresh rebases the address in a Refresh header, "5; url=/x".
func (b rebaser) refresh(v string) string {
	at := strings.IndexAny(v, ";,")
	if at < 0 {
		return v
	}
	rest := strings.TrimLeft(v[at+1:], " \t")
	if len(rest) < 4 || !strings.EqualFold(rest[:3], "url") {
		return v
	}
	eq := strings.TrimLeft(rest[3:], " \t")
	ref, ok := strings.CutPrefix(eq, "=")
	if !ok {
		return v
	}
	return v[:at] + "; url=" + b.location(strings.Trim(ref, " \t\"'"))
}

// cookie confines a Set-Cookie value to the panel: no Domain, and a Path below
// the prefix.
func (b rebaser) cookie(v string) string {
	parts := strings.Split(v, ";")
	out := parts[:1:1]
	path := "/"
	for _, p := range parts[1:] {
		name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "domain":
		case "path":
			if value = strings.TrimSpace(value); strings.HasPrefix(value, "/") {
				path = value
			}
		default:
			out = append(out, p)
		}
	}
	return strings.Join(append(out, " Path="+b.path(path)), ";")
}

// ownHostCookies keeps cookies on the sandbox's own host, and the panel's own
// out of the guest's hands.
func ownHostCookies(values []string) []string {
	var out []string
	for _, v := range values {
		parts := strings.Split(v, ";")
		if name, _, _ := strings.Cut(strings.TrimSpace(parts[0]), "="); name == panelCookie || name == panelCookieSecure {
			continue
		}
		keep := parts[:1:1]
		for _, p := range parts[1:] {
			if name, _, _ := strings.Cut(strings.TrimSpace(p), "="); !strings.EqualFold(strings.TrimSpace(name), "domain") {
				keep = append(keep, p)
			}
		}
		out = append(out, strings.Join(keep, ";"))
	}
	return out
}

// referer gives what the guest may see of a Referer: addresses without the
// token. Of other pages it sees what the browser sent.
func (b rebaser) referer(v string) string {
	u, err := url.Parse(v)
	if err != nil {
		return ""
	}
	if !strings.Contains(v, b.prefix) {
		return redact(v) // another panel's, perhaps
	}
	tail, ok := strings.CutPrefix(u.EscapedPath(), b.prefix)
	if !ok {
		return redact(v)
	}
	if tail == "" {
		tail = "/"
	}
	out := u.Scheme + "://" + u.Host + tail
	if u.RawQuery != "" {
		out += "?" + u.RawQuery
	}
	return redact(out)
}
