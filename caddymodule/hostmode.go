package caddymodule

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/session"
)

// sandboxHole is where a sandbox's id stands in a host pattern.
const sandboxHole = "{sandbox}"

// hostPattern is a host name with the sandbox's id in it, such as
// {sandbox}.panels.example.com. With one, each sandbox has an origin of its own:
// cookies and storage are apart by themselves, and pages may ask for paths from
// the root.
type hostPattern struct{ before, after string }

// parseHostPattern reports false for what has not exactly one hole in a label.
func parseHostPattern(s string) (hostPattern, bool) {
	before, after, ok := strings.Cut(strings.ToLower(s), sandboxHole)
	good := ok && strings.HasPrefix(after, ".") && len(after) > 1 && !strings.ContainsAny(before+after, "{}/:*?# ")
	return hostPattern{before, after}, good
}

// sandbox gives the id in a request's Host, which may have a port.
func (p hostPattern) sandbox(host string) (session.ID, bool) {
	host = strings.TrimSuffix(strings.ToLower(withoutPort(host)), ".")
	id, ok := strings.CutPrefix(host, p.before)
	if !ok {
		return "", false
	}
	if id, ok = strings.CutSuffix(id, p.after); !ok {
		return "", false
	}
	return session.ParseID(id)
}

var errHost = apierror.New(apierror.Forbidden, "host_mismatch", "this panel link belongs to another host")

// The panel cookie holds the token of the page last opened, for what a page
// asks for from its origin's root: scripts of a development server, and
// WebSockets, which have no Referer. It counts only on a sandbox's own host, and
// only for requests of that very origin.
const (
	panelCookie       = "cubepod-panel"
	panelCookieSecure = "__Host-" + panelCookie
)

func panelCookieName(r *http.Request) string {
	if r.TLS != nil {
		return panelCookieSecure
	}
	return panelCookie
}

// setPanelCookie keeps token for the page that r opens. In a frame of another
// site only a partitioned cookie is kept.
func setPanelCookie(h http.Header, r *http.Request, token string) {
	c := panelCookieName(r) + "=" + token + "; Path=/; HttpOnly"
	if r.TLS != nil {
		c += "; Secure; SameSite=None; Partitioned"
	} else {
		c += "; SameSite=Lax"
	}
	h.Add("Set-Cookie", c)
}

// takePanelCookie takes the panel cookie out of r, so that the guest never sees
// it, and gives its value.
func takePanelCookie(r *http.Request) (token string) {
	lines := r.Header["Cookie"]
	for i, line := range lines {
		if !strings.Contains(line, panelCookie) {
			continue
		}
		var keep []string
		for part := range strings.SplitSeq(line, ";") {
			name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			switch name {
			case panelCookieName(r):
				token = value
			case panelCookie, panelCookieSecure:
			default:
				keep = append(keep, strings.TrimSpace(part))
			}
		}
		lines[i] = strings.Join(keep, "; ")
	}
	if len(lines) == 1 && lines[0] == "" {
		delete(r.Header, "Cookie")
	}
	return token
}

// rootPath says what a request for a path outside the prefix is for, on a
// sandbox's own host: the panel of the page it comes from.
func (p *Panel) rootPath(r *http.Request, uri string) (path panelPath, redirect string, ok bool) {
	token := takePanelCookie(r)
	if !sameOrigin(r) {
		return panelPath{}, "", false
	}
	// A page of another port than the last one opened says so itself.
	if from, ok := p.refererPath(r); ok && from.token != token && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		return panelPath{}, from.prefix + uri, true
	}
	return panelPath{token: token, rest: uri}, "", token != ""
}

func (p *Panel) refererPath(r *http.Request) (panelPath, bool) {
	u, err := url.Parse(r.Header.Get("Referer"))
	if err != nil || !strings.EqualFold(u.Host, r.Host) {
		return panelPath{}, false
	}
	return splitPanelPath(u.EscapedPath(), p.Prefix)
}

// sameOrigin reports whether r comes from a page of the origin it goes to, or
// was typed in. Who tells neither is taken by what little he says.
func sameOrigin(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return true
	case "":
	default:
		return false
	}
	for _, from := range []string{r.Header.Get("Origin"), r.Header.Get("Referer")} {
		if from == "" {
			continue
		}
		u, err := url.Parse(from)
		return err == nil && strings.EqualFold(u.Host, r.Host)
	}
	return false
}
