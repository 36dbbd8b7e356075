// Package caddymodule is CubePod's edge as a Caddy plugin: it turns a signed
// panel URL, /panel/{token}/…, into a request to a port of the sandbox that
// the token names.
//
// The package authenticates, routes and rewrites; Caddy's own reverse_proxy
// carries the bytes, so HTTP/2, HTTP/3, WebSocket, flushing and retries are
// Caddy's. Its parts:
//
//   - the app "cubepod" ([App], global option cubepod): keys, Redis, limits;
//   - the handler "cubepod_panel" ([Panel]), which the directive of that name
//     puts in front of a reverse_proxy;
//   - the upstream source and the transport "cubepod" ([Upstreams],
//     [Transport]) that take over what the handler found;
//   - the log format "cubepod_token" ([TokenEncoder]) and the filter of the same
//     name ([TokenFilter]);
//   - the on-demand TLS permission "cubepod" ([Permission]);
//   - the admin endpoint's routes below /cubepod/ ([Admin]).
//
// It knows no runtime and keeps no state that a replica would miss: where a
// sandbox is stands in Redis, and package session says how.
package caddymodule

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"go.uber.org/zap"

	_ "github.com/cubeplexai/cubepod/caddymodule/h2ws" // browsers may open WebSockets over HTTP/2
	"github.com/cubeplexai/cubepod/internal/redisurl"
)

func init() {
	caddy.RegisterModule(App{})
	caddy.RegisterModule(Panel{})
	caddy.RegisterModule(Matcher{})
	caddy.RegisterModule(Upstreams{})
	caddy.RegisterModule(Transport{})
	caddy.RegisterModule(TokenFilter{})
	caddy.RegisterModule(TokenEncoder{})
	caddy.RegisterModule(Permission{})
	caddy.RegisterModule(Admin{})
	httpcaddyfile.RegisterGlobalOption("cubepod", parseGlobalOption)
	httpcaddyfile.RegisterDirective("cubepod_panel", parseDirective)
	httpcaddyfile.RegisterDirectiveOrder("cubepod_panel", httpcaddyfile.Before, "respond")
}

// App holds what all panel routes share. Every text value may contain Caddy
// placeholders such as {env.CUBEPOD_REDIS}.
type App struct {
	// Redis is the URL of the Redis that the session API writes; package
	// redisurl lists its forms. A Redis that is down does not keep the edge
	// from starting. Sandboxes whose record was read within the last hour are
	// served on without it, others are a 503; no open stream is cut.
	Redis string `json:"redis,omitempty"`
	// PanelKeys is the file of the keys that panel tokens are checked with. It
	// is read again when it changes, as TunnelKey is. Links and open streams of a
	// key that is no longer in it end.
	PanelKeys string `json:"panel_keys,omitempty"`
	// TunnelKey is the file of the keys that podd's tunnel tokens are derived
	// from.
	TunnelKey string `json:"tunnel_key,omitempty"`
	// AllowUpstream are the prefixes in which a port may be registered with an
	// address of its own. None by default.
	AllowUpstream []string `json:"allow_upstream,omitempty"`
	// SandboxNetwork are the prefixes in which podd may listen.
	SandboxNetwork []string `json:"sandbox_network,omitempty"`
	// LocalSockets is the directory of podd's sockets under the local runtime.
	LocalSockets string `json:"local_sockets,omitempty"`
	// API is the session API's base URL, for waking paused sandboxes. Without
	// it nothing is woken.
	API string `json:"api,omitempty"`
	// MaxPerSandbox bounds the requests and streams under way to one sandbox.
	// Default: 1000; a negative number is no bound
	MaxPerSandbox int `json:"max_per_sandbox,omitempty"`
	// MaxPerClient bounds those of one client address. Behind a proxy, set
	// Caddy's trusted_proxies first: without, that proxy is the one client.
	// Default: no bound
	MaxPerClient int `json:"max_per_client,omitempty"`
	// MaxFailures bounds the links that are not valid which a client address
	// may try in a minute; beyond, it gets 429. Good links always work.
	// Default: 120; a negative number is no bound
	MaxFailures int `json:"max_failures,omitempty"`

	logger   *zap.Logger
	keys     *keyring
	dialer   *dialer
	state    *state
	stateKey stateKey
	limits   limits
}

const (
	defaultPerSandbox = 1000
	defaultFailures   = 120
)

// CaddyModule returns the Caddy module information.
func (App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "cubepod", New: func() caddy.Module { return new(App) }}
}

// Provision reads the key files and joins the state that outlives a reload.
func (a *App) Provision(ctx caddy.Context) error {
	a.logger = ctx.Logger()
	if err := a.expand(); err != nil {
		return err
	}
	a.limits = limits{
		perSandbox: cmp.Or(a.MaxPerSandbox, defaultPerSandbox),
		perClient:  a.MaxPerClient,
		failures:   cmp.Or(a.MaxFailures, defaultFailures),
	}
	var err error
	if a.keys, err = newKeyring(a.PanelKeys, a.TunnelKey, a.logger); err != nil {
		return err
	}
	if a.dialer, err = a.newDialer(); err != nil {
		return err
	}
	if a.state, err = a.joinState(); err != nil {
		return err
	}
	if err := a.state.metrics.register(ctx.GetMetricsRegistry()); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	events, err := ctx.App("events")
	if err != nil {
		return err
	}
	bus := events.(*caddyevents.App)
	return errors.Join(bus.On("stopping", onStopping{a.state}), bus.On("started", onStarted{a}))
}

// expand replaces placeholders and refuses settings that cannot work.
func (a *App) expand() error {
	repl := caddy.NewReplacer()
	for _, s := range []struct {
		name     string
		value    *string
		required bool
	}{
		{"redis", &a.Redis, true},
		{"panel_keys", &a.PanelKeys, true},
		{"tunnel_key", &a.TunnelKey, true},
		{"local_sockets", &a.LocalSockets, false},
		{"api", &a.API, false},
	} {
		v, err := repl.ReplaceOrErr(*s.value, true, true)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if v == "" && s.required {
			return fmt.Errorf("%s is not set", s.name)
		}
		*s.value = v
	}
	for _, list := range [][]string{a.AllowUpstream, a.SandboxNetwork} {
		for i, v := range list {
			list[i] = repl.ReplaceAll(v, "")
		}
	}
	if _, err := redisurl.Parse(a.Redis); err != nil {
		return err
	}
	if a.API != "" {
		u, err := url.Parse(a.API)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return errors.New("api: want a URL such as http://127.0.0.1:8090")
		}
		a.API = strings.TrimSuffix(a.API, "/")
	}
	return nil
}

func (a *App) newDialer() (*dialer, error) {
	direct, err := parsePrefixes(a.AllowUpstream)
	if err != nil {
		return nil, fmt.Errorf("allow_upstream: %w", err)
	}
	podd, err := parsePrefixes(a.SandboxNetwork)
	if err != nil {
		return nil, fmt.Errorf("sandbox_network: %w", err)
	}
	return &dialer{direct: direct, podd: podd, sockets: a.LocalSockets}, nil
}

// parsePrefixes reads prefixes and single addresses. A list in one word, with
// spaces, is what a placeholder leaves.
func parsePrefixes(list []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, s := range strings.Fields(strings.Join(list, " ")) {
		if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, p.Masked())
			continue
		}
		ip, err := netip.ParseAddr(s)
		if err != nil {
			return nil, fmt.Errorf("%q is no address prefix", s)
		}
		out = append(out, netip.PrefixFrom(ip, ip.BitLen()))
	}
	return out, nil
}

// Start begins to follow the key files. What requests need besides works from
// Provision on.
func (a *App) Start() error {
	a.keys.start(a.recheck)
	return nil
}

// recheck ends the requests and streams whose key is no longer among ours.
func (a *App) recheck() { a.state.visits.recheck(a.keys.verifier()) }

// Stop ends following the key files. Requests of this configuration may still
// be under way when a new one has taken over.
func (a *App) Stop() error {
	a.keys.stop()
	return nil
}

// Cleanup leaves the shared state, which ends with its last user.
func (a *App) Cleanup() error {
	if a.state == nil {
		return nil
	}
	_, err := states.Delete(a.stateKey)
	return err
}

// Interface guards.
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)
