package sessionapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/keyfile"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/internal/session"
)

// podds reaches the daemons of all sandboxes. Its connections are kept by
// sandbox and incarnation, never by address: an address can belong to another
// sandbox tomorrow.
type podds struct {
	sockets string
	http    *http.Transport
	pulses  pulses
}

type endpointKey struct{}

func newPodds(sockets string, silence time.Duration) *podds {
	p := &podds{sockets: sockets, pulses: pulses{silence: silence, by: map[string]*pulse{}}}
	p.http = &http.Transport{
		Proxy:               nil, // podd is never behind the environment's proxy
		DialContext:         p.dial,
		DisableCompression:  true, // bytes pass as they are
		MaxIdleConns:        1024,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     90 * time.Second,
	}
	return p
}

func (p *podds) close() { p.http.CloseIdleConnections() }

// dial connects to the endpoint that the request's context holds.
func (p *podds) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	e, _ := ctx.Value(endpointKey{}).(session.Endpoint)
	if rel, ok := e.Socket(); ok {
		return d.DialContext(ctx, "unix", filepath.Join(p.sockets, rel))
	}
	if ap, ok := e.AddrPort(); ok {
		return d.DialContext(ctx, "tcp", ap.String())
	}
	return nil, fmt.Errorf("dial podd: %q is no endpoint", e)
}

// via gives the way to the podd of rec.
func (p *podds) via(rec *session.Record) *poddVia {
	return &poddVia{podds: p, endpoint: rec.Endpoint, host: fmt.Sprintf("%s-%d.podd", rec.ID, rec.Incarnation)}
}

type poddVia struct {
	podds    *podds
	endpoint session.Endpoint
	host     string // what connections are kept by
}

// RoundTrip implements http.RoundTripper. It waits for as long as podd lives.
func (v *poddVia) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := v.podds.pulses.attend(v, r)
	if err != nil && r.Context().Err() == nil {
		err = unanswered(err)
	}
	return resp, err
}

func (v *poddVia) send(r *http.Request) (*http.Response, error) {
	r = r.Clone(context.WithValue(r.Context(), endpointKey{}, v.endpoint))
	r.URL.Scheme, r.URL.Host, r.Host = "http", v.host, "podd"
	return v.podds.http.RoundTrip(r)
}

// unanswered is the error of a call that nobody but podd can have ended. A dial
// that took too long is not the caller's time that is over.
func unanswered(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return apierror.Wrap(err, apierror.BadGateway, "podd_unreachable", "the sandbox's daemon cannot be reached")
	}
	return err
}

// lives reports whether podd answers before ctx ends, whatever it says.
func (v *poddVia) lives(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "/health", nil)
	if err != nil {
		return false
	}
	resp, err := v.send(req)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection is of use again
	resp.Body.Close()
	return true
}

// podd gives a client of the sandbox's podd.
func (s *Service) podd(rec *session.Record) (*poddapi.Client, error) {
	token, err := s.token(rec, poddapi.Full)
	if err != nil {
		return nil, err
	}
	return poddapi.NewClient(s.podds.via(rec), token), nil
}

// token derives a token of the record's incarnation.
func (s *Service) token(rec *session.Record, scope poddapi.Scope) (string, error) {
	keys, id := s.keys.Master, rec.MasterKey
	if scope == poddapi.Tunnel {
		keys, id = s.keys.Tunnel, rec.TunnelKey
	}
	key, ok := keys.Find(id)
	if !ok {
		return "", missingKey(scope, id, keys)
	}
	return poddapi.Token(key.Secret, scope, string(rec.ID), rec.Incarnation), nil
}

func missingKey(scope poddapi.Scope, id string, keys keyfile.Keys) error {
	return apierror.New(apierror.Internal, "unknown_key",
		"the sandbox was started under the %s key %q, which this server does not have among its %d", scope, id, len(keys))
}

// running gives the record of a sandbox that can be talked to, after waiting
// for a change of state that is under way.
func (s *Service) running(ctx context.Context, rec *session.Record) (*session.Record, error) {
	if rec.State.Transient() {
		var err error
		if rec, err = s.settled(ctx, rec.ID); err != nil {
			return nil, err
		}
	}
	if rec.State != session.Running {
		return nil, stateError(rec, "the sandbox does not run")
	}
	return rec, nil
}
