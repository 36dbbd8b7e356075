package caddymodule

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/keyfile"
	"github.com/cubeplexai/cubepod/internal/paneltoken"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/internal/session"
)

// dialTimeout bounds the way to a guest's port, podd's handshake included.
const dialTimeout = 5 * time.Second

// target is a port of one incarnation of a sandbox, and how to get there. It is
// never changed once made.
type target struct {
	sid         session.ID
	incarnation int64
	port        int
	direct      netip.AddrPort // of a port registered with an address
	endpoint    session.Endpoint
	tunnelKey   []byte // that podd's tunnel token is derived from
}

// poolKey is the host under which connections to the target are kept. A
// recycled address never gets a connection of its former owner, and the ports
// of a sandbox, which share podd's address, do not get each other's.
func (t *target) poolKey() string {
	var buf [128]byte
	key := append(buf[:0], t.sid...)
	key = strconv.AppendInt(append(key, '-'), t.incarnation, 10)
	key = strconv.AppendInt(append(key, '-'), int64(t.port), 10)
	if t.direct.IsValid() {
		at := len(key) + 1
		key = t.direct.AppendTo(append(key, '-'))
		for i, c := range key[at:] {
			switch c {
			case '.', ':', '[', ']', '%':
				key[at+i] = '-'
			}
		}
	}
	return string(append(key, ".cubepod.internal"...))
}

// newTarget finds the way to the port that c names, on a running sandbox.
func newTarget(c paneltoken.Claims, rec *session.Record, tunnelKeys keyfile.Keys) (*target, error) {
	p, ok := rec.Ports[c.Port]
	if !ok {
		return nil, apierror.New(apierror.NotFound, "port_not_found", "port %d is not registered", c.Port)
	}
	t := &target{sid: rec.ID, incarnation: rec.Incarnation, port: c.Port, direct: p.Address, endpoint: rec.Endpoint}
	if t.direct.IsValid() {
		return t, nil
	}
	k, ok := tunnelKeys.Find(rec.TunnelKey)
	if !ok {
		return nil, apierror.Wrap(errors.New("the record names the tunnel key "+rec.TunnelKey),
			apierror.Unavailable, "tunnel_key_unknown", "the edge lacks the key to this sandbox")
	}
	t.tunnelKey = k.Secret
	return t, nil
}

// dialer opens connections to targets, within what the operator allows.
type dialer struct {
	direct  []netip.Prefix // for registered addresses
	podd    []netip.Prefix // for podd's
	sockets string         // directory of podd's Unix sockets
}

// dial connects to t. Its errors are *[apierror.Error].
func (d *dialer) dial(ctx context.Context, t *target) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if t.direct.IsValid() {
		conn, err := d.dialAddr(ctx, d.direct, t.direct)
		if err == nil || apierror.KindOf(err) != apierror.Internal {
			return conn, err
		}
		return nil, portError(err, t.port)
	}
	conn, err := d.dialPodd(ctx, t.endpoint)
	if err != nil {
		if apierror.KindOf(err) != apierror.Internal {
			return nil, err
		}
		return nil, poddUnreachable(err)
	}
	tunnel, err := poddapi.OpenTunnel(ctx, conn, poddapi.Token(t.tunnelKey, poddapi.Tunnel, string(t.sid), t.incarnation), t.port)
	if err == nil {
		return tunnel, nil
	}
	switch e := apierror.From(err); {
	case e.WireCode() == "port_closed":
		return nil, portError(err, t.port)
	case e.Kind == apierror.BadGateway:
		return nil, err
	default: // a token it does not know, say: not for the client to read
		return nil, poddUnreachable(err)
	}
}

func (d *dialer) dialPodd(ctx context.Context, e session.Endpoint) (net.Conn, error) {
	if rel, ok := e.Socket(); ok {
		if d.sockets == "" {
			return nil, apierror.New(apierror.BadGateway, "address_not_allowed", "this edge serves no local sandboxes")
		}
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(d.sockets, rel))
	}
	addr, ok := e.AddrPort()
	if !ok {
		return nil, errors.New("the record has no usable endpoint")
	}
	return d.dialAddr(ctx, d.podd, addr)
}

func (d *dialer) dialAddr(ctx context.Context, allowed []netip.Prefix, addr netip.AddrPort) (net.Conn, error) {
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	if !addressAllowed(allowed, addr.Addr()) {
		return nil, apierror.New(apierror.BadGateway, "address_not_allowed", "the port's address is not one this edge may dial")
	}
	return new(net.Dialer).DialContext(ctx, "tcp", addr.String())
}

// addressAllowed reports whether ip is in one of the prefixes and of a kind
// that a sandbox can have: a metadata service on a link-local address is
// refused even where someone allowed everything.
func addressAllowed(allowed []netip.Prefix, ip netip.Addr) bool {
	if !ip.IsValid() || ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast() ||
		ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return false
	}
	for _, p := range allowed {
		if p.Contains(ip) && (!ip.IsLoopback() || p.Addr().IsLoopback()) {
			return true
		}
	}
	return false
}

func portError(err error, port int) error {
	if errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
		return apierror.Wrap(err, apierror.Timeout, "port_timeout", "port %d of the sandbox does not answer", port)
	}
	if errors.Is(err, syscall.ECONNREFUSED) || apierror.From(err).WireCode() == "port_closed" {
		return apierror.Wrap(err, apierror.BadGateway, "port_closed", "nothing listens on port %d of the sandbox", port)
	}
	return apierror.Wrap(err, apierror.BadGateway, "port_unreachable", "port %d of the sandbox cannot be reached", port)
}

func poddUnreachable(err error) error {
	return apierror.Wrap(err, apierror.BadGateway, "podd_unreachable", "the sandbox's daemon does not answer")
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[net.Error](err)
	return ok && t.Timeout()
}
