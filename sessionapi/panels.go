package sessionapi

import (
	"context"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/paneltoken"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/internal/session"
)

// chromiumPort is where the guest's Chromium itself listens. Only its front on
// 9222 is ever shown.
const chromiumPort = 9223

// PanelRequest says what panel URL is wanted.
type PanelRequest struct {
	Port    int
	Path    string // "/" when empty; may have a query
	Expires time.Duration
	Mode    paneltoken.Mode // Control when empty
}

// Panel is a URL to one port.
type Panel struct {
	URL     string
	Token   string
	Expires time.Time
}

// MintPanel makes a panel URL and registers its port unless it is registered.
func (s *Service) MintPanel(ctx context.Context, id session.ID, req PanelRequest) (Panel, error) {
	if req.Path == "" {
		req.Path = "/"
	}
	if req.Mode == "" {
		req.Mode = paneltoken.Control
	}
	if err := s.allowPort(req.Port); err != nil {
		return Panel{}, err
	}
	if err := req.validate(); err != nil {
		return Panel{}, err
	}
	m, err := s.mint(ctx, id, req.Expires, nil, []int{req.Port}, req.Mode)
	if err != nil {
		return Panel{}, err
	}
	token := m.tokens[req.Port]
	return Panel{URL: s.panelURL(id, token, req.Path), Token: token, Expires: m.expires}, nil
}

func (r *PanelRequest) validate() error {
	if !strings.HasPrefix(r.Path, "/") || len(r.Path) > 4096 ||
		strings.ContainsFunc(r.Path, func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '\\' }) {
		return apierror.New(apierror.Invalid, "invalid_path", "a path starts with / and is written in URL form")
	}
	if _, err := url.ParseRequestURI(r.Path); err != nil {
		return apierror.New(apierror.Invalid, "invalid_path", "the path has a bad escape")
	}
	switch {
	case r.Mode != paneltoken.Control && r.Mode != paneltoken.View:
		return apierror.New(apierror.Invalid, "invalid_mode", `mode is "control" or "view"`)
	case r.Mode == paneltoken.View && r.Port != ViewerPort && r.Port != TerminalPort:
		return apierror.New(apierror.Invalid, "invalid_mode", "view mode is for the ports %d and %d only", ViewerPort, TerminalPort)
	}
	return nil
}

// RevokePanels makes every earlier panel URL of the sandbox void.
func (s *Service) RevokePanels(ctx context.Context, id session.ID) error {
	_, err := s.edit(ctx, id, func(r *session.Record) error { r.Gen++; return nil })
	return err
}

// RegisterPort lets the edge reach a guest port, through podd or, with an
// address, directly.
func (s *Service) RegisterPort(ctx context.Context, id session.ID, port int, address netip.AddrPort) error {
	if err := s.allowPort(port); err != nil {
		return err
	}
	if address.IsValid() {
		address = netip.AddrPortFrom(address.Addr().Unmap(), address.Port())
		if !s.allowAddress(address) {
			return apierror.New(apierror.Invalid, "address_not_allowed", "the operator allows no such address")
		}
	}
	_, err := s.edit(ctx, id, func(r *session.Record) error {
		register(r, port, session.Port{Address: address})
		return nil
	})
	return err
}

// UnregisterPort takes a port back.
func (s *Service) UnregisterPort(ctx context.Context, id session.ID, port int) error {
	_, err := s.edit(ctx, id, func(r *session.Record) error {
		if _, ok := r.Ports[port]; !ok {
			return apierror.New(apierror.NotFound, "port_not_found", "port %d is not registered", port)
		}
		delete(r.Ports, port)
		return nil
	})
	return err
}

func register(r *session.Record, port int, p session.Port) {
	if r.Ports == nil {
		r.Ports = map[int]session.Port{}
	}
	r.Ports[port] = p
}

func (s *Service) allowPort(port int) error {
	switch {
	case port < 1 || port > 65535:
		return apierror.New(apierror.Invalid, "invalid_port", "a port is a number from 1 to 65535")
	case port == chromiumPort || port == poddapi.Port:
		return apierror.New(apierror.Invalid, "port_not_allowed", "port %d is never shown", port)
	case port == CDPPort && s.opts.HideCDP:
		return apierror.New(apierror.Invalid, "port_not_allowed", "the operator does not expose CDP")
	}
	return nil
}

func (s *Service) allowAddress(a netip.AddrPort) bool {
	if a.Addr().Zone() != "" || a.Port() == 0 {
		return false
	}
	for _, p := range s.opts.AllowUpstream {
		if p.Contains(a.Addr()) {
			return true
		}
	}
	return false
}

// minted are tokens for some ports of a sandbox.
type minted struct {
	tokens  map[int]string
	expires time.Time
}

// mint registers ports that are not registered yet and notes the tokens' end,
// with what change does in the same write, and then signs the tokens: no token
// is out that the tombstone would not outlive.
func (s *Service) mint(ctx context.Context, id session.ID, expires time.Duration, change func(*session.Record), ports []int, mode paneltoken.Mode) (minted, error) {
	now := s.clock.now().Truncate(time.Second)
	m := minted{tokens: map[int]string{}, expires: now.Add(expires)}
	rec, err := s.edit(ctx, id, func(r *session.Record) error {
		for _, p := range ports {
			if _, ok := r.Ports[p]; !ok {
				register(r, p, session.Port{})
			}
		}
		if r.TokensUntil.Before(m.expires) {
			// With some room, or each of many calls would write.
			r.TokensUntil = m.expires.Add(max(expires/10, time.Minute))
		}
		if change != nil {
			change(r)
		}
		return nil
	})
	if err != nil {
		return m, err
	}
	for _, p := range ports {
		m.tokens[p], err = s.signer.Sign(paneltoken.Claims{
			Sandbox: string(id), Port: p, IssuedAt: now, Expires: m.expires, Gen: rec.Gen, Mode: mode,
		})
		if err != nil {
			return m, err
		}
	}
	return m, nil
}

// panelPrefix is the edge's default path prefix.
const panelPrefix = "/panel/"

func (s *Service) panelURL(id session.ID, token, path string) string {
	base := strings.ReplaceAll(strings.TrimRight(s.opts.PanelBaseURL, "/"), "{sandbox}", string(id))
	return base + panelPrefix + token + path
}
