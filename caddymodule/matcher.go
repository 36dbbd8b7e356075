package caddymodule

import (
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Matcher is the request matcher "cubepod_panel": what is below the prefix, to
// the letter, and what would be in another spelling.
//
// Caddy's path matcher alone cleans paths first, so it would miss
// /panel/{token}/..%2fx, which is the guest's to judge. Other spellings are
// matched so that [Panel] can refuse them: they may hold a token, and Caddy's
// own answer would log it.
type Matcher struct {
	// Prefix is the path below which panels are, as in [Panel].
	Prefix string `json:"prefix,omitempty"`
	// PanelHost makes all of a sandbox's own host match, as in [Panel].
	PanelHost string `json:"panel_host,omitempty"`

	hosts   hostPattern
	lenient caddyhttp.MatchPath
}

// CaddyModule returns the Caddy module information.
func (Matcher) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.matchers.cubepod_panel", New: func() caddy.Module { return new(Matcher) }}
}

// Provision prepares the lenient match.
func (m *Matcher) Provision(ctx caddy.Context) error {
	if m.Prefix == "" {
		m.Prefix = defaultPrefix
	}
	if m.PanelHost != "" {
		var ok bool
		if m.hosts, ok = parseHostPattern(m.PanelHost); !ok {
			return badHostPattern(m.PanelHost)
		}
	}
	m.lenient = caddyhttp.MatchPath{m.Prefix + "/*"}
	return m.lenient.Provision(ctx)
}

// MatchWithError reports whether r is for a panel.
func (m *Matcher) MatchWithError(r *http.Request) (bool, error) {
	if strings.HasPrefix(originForm(r), m.Prefix+"/") {
		return true, nil
	}
	if m.PanelHost != "" {
		if _, ok := m.hosts.sandbox(r.Host); ok {
			return true, nil
		}
	}
	return m.lenient.MatchWithError(r)
}

// Interface guards.
var (
	_ caddy.Provisioner                 = (*Matcher)(nil)
	_ caddyhttp.RequestMatcherWithError = (*Matcher)(nil)
)
