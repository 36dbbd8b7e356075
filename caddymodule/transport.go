package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/loopback"
)

// handover is what the panel handler found and the transport acts on. It
// travels in the request's context, which the dialling of a new connection
// still sees.
type handover struct {
	app    *App
	target *target
	// path is the path as the client sent it, and parsed what Go made of it:
	// where escaping it again gives other bytes, the transport sends path.
	path, parsed, parsedRaw string
	// prefix is the panel's path with the token.
	prefix string
	// guestHost has the guest see its own Host and Origin.
	guestHost bool
	// request is the panel's, and logURI its address without the token.
	request *http.Request
	logURI  string
	// hidden are the headers that a log must not show.
	hidden hiddenHeaders
}

type handoverKey struct{}

func handoverOf(ctx context.Context) (*handover, error) {
	if h, ok := ctx.Value(handoverKey{}).(*handover); ok {
		return h, nil
	}
	return nil, errors.New("no cubepod_panel handler came before this reverse_proxy")
}

// Upstreams is the upstream source "cubepod". It names one upstream and leaves
// the rest to [Transport].
type Upstreams struct{}

// upstreamLabel is the upstream's name in Caddy's counters and logs. It is the
// same for every sandbox: Caddy remembers each name for an hour, and sandboxes
// come and go.
const upstreamLabel = "sandbox.cubepod.internal:80"

// CaddyModule returns the Caddy module information.
func (Upstreams) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.reverse_proxy.upstreams.cubepod", New: func() caddy.Module { return new(Upstreams) }}
}

// GetUpstreams gives the upstream of a request that a panel handler let
// through. Caddy changes what it gets, so it is a new one each time.
func (Upstreams) GetUpstreams(r *http.Request) ([]*reverseproxy.Upstream, error) {
	if _, err := handoverOf(r.Context()); err != nil {
		return nil, err
	}
	return []*reverseproxy.Upstream{{Dial: upstreamLabel}}, nil
}

// Transport is the transport "cubepod": plain HTTP/1.1 over connections that
// podd tunnels to the guest's loopback, or to a port's registered address. Its
// options are those of Caddy's "http" transport, as far as they can apply.
type Transport struct {
	reverseproxy.HTTPTransport
}

// CaddyModule returns the Caddy module information.
func (Transport) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.reverse_proxy.transport.cubepod", New: func() caddy.Module { return new(Transport) }}
}

// Provision sets the transport up.
func (t *Transport) Provision(ctx caddy.Context) error {
	if err := t.refuseOptions(); err != nil {
		return err
	}
	plain := false
	t.Compression = &plain // the guest sees the client's Accept-Encoding, no other
	t.Versions = []string{"1.1"}
	if err := t.HTTPTransport.Provision(ctx); err != nil {
		return err
	}
	t.Transport.Proxy = nil // HTTP_PROXY is for the world outside
	t.Transport.DialContext = dialHandover
	return nil
}

func (t *Transport) refuseOptions() error {
	for name, set := range map[string]bool{
		"tls":               t.TLS != nil,
		"versions":          len(t.Versions) > 0,
		"compression":       t.Compression != nil,
		"proxy_protocol":    t.ProxyProtocol != "",
		"forward_proxy_url": t.ForwardProxyURL != "",
		"network_proxy":     t.NetworkProxyRaw != nil,
		"resolvers":         t.Resolver != nil,
		"local_address":     t.LocalAddress != "",
	} {
		if set {
			return fmt.Errorf("the cubepod transport has no option %s", name)
		}
	}
	return nil
}

// dialHandover opens the connection for a request's target.
func dialHandover(ctx context.Context, _, _ string) (net.Conn, error) {
	h, err := handoverOf(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := h.app.dialer.dial(ctx, h.target)
	if err != nil {
		e := apierror.From(err)
		h.app.state.metrics.dialled(e.WireCode())
		if e.WireCode() == "podd_unreachable" {
			h.app.state.records.doubt(h.target.sid) // it may be elsewhere by now
		}
		return nil, dialFailure{e}
	}
	h.app.state.metrics.dialled("ok")
	return conn, nil
}

// dialFailure is a failed dial: to reverse_proxy a DialError, which it may retry
// whatever the method, and to the panel the error it answers with. (A DialError
// does not unwrap.)
type dialFailure struct{ cause *apierror.Error }

// Error gives the cause.
func (f dialFailure) Error() string { return f.cause.Error() }

// As makes errors.As find a DialError.
func (f dialFailure) As(target any) bool {
	if d, ok := target.(*reverseproxy.DialError); ok {
		*d = reverseproxy.NewDialError(f.cause)
		return true
	}
	return false
}

// Unwrap gives the panel's error.
func (f dialFailure) Unwrap() error { return f.cause }

// RoundTrip sends the request to its target. What only the guest may see is
// added here, below Caddy's logging.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	h, err := handoverOf(r.Context())
	if err != nil {
		return nil, err
	}
	out := r.WithContext(untraced{r.Context()})
	u := *r.URL
	u.Scheme, u.Host = "http", h.target.poolKey()
	if u.Path == h.parsed && u.RawPath == h.parsedRaw && u.EscapedPath() != h.path && !strings.HasPrefix(h.path, "//") {
		u.Opaque = h.path
	}
	out.URL = &u
	if h.guestHost || h.hidden.request != nil {
		out.Header = r.Header.Clone()
		restore(out.Header, h.hidden.request)
	}
	if h.guestHost {
		dressForLoopback(out, h)
	}
	resp, err := t.Transport.RoundTrip(out)
	scrubTrace(r.Context(), h.request, h.logURI)
	if err != nil {
		return nil, err
	}
	if !isFinal(resp, out.Header) {
		_ = resp.Body.Close() // and with it the connection
		return nil, errSenseless
	}
	h.hidden.response = hide(resp.Header)
	return resp, nil
}

// guarded reports whether the target is one of the desktop's own servers, which
// answer loopback hosts and their own origin only.
func guarded(t *target) bool {
	return !t.direct.IsValid() && isDesktopPort(t.port)
}

func isDesktopPort(port int) bool {
	return port == viewerPort || port == terminalPort || port == cdpPort
}

// The desktop's ports.
const (
	viewerPort   = 8080
	terminalPort = 7681
	cdpPort      = 9222
)

func dressForLoopback(r *http.Request, h *handover) {
	r.Host = loopback.Host(h.target.port)
	if r.Header.Get("Origin") != "" {
		r.Header.Set("Origin", loopback.Origin(h.target.port))
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "Sec-Fetch-") {
			delete(r.Header, name)
		}
	}
	if h.target.port == cdpPort {
		// DevTools gives out addresses; the front needs to know its own. The
		// bearer of the token gets nothing he does not have.
		r.Header.Set("X-Forwarded-Prefix", h.prefix)
	}
}

// Interface guards.
var (
	_ reverseproxy.UpstreamSource = Upstreams{}
	_ caddy.Provisioner           = (*Transport)(nil)
	_ caddy.CleanerUpper          = (*Transport)(nil)
	_ http.RoundTripper           = (*Transport)(nil)
)
