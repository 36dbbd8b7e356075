package caddymodule

import (
	"context"
	"fmt"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddytls"

	"github.com/cubeplexai/cubepod/internal/session"
)

// Permission is the on-demand TLS permission "cubepod": a certificate may be
// had for the host of a sandbox that there is, and for no other, however many
// names somebody makes up.
//
//	{
//	    on_demand_tls {
//	        permission cubepod {sandbox}.panels.example.com
//	    }
//	}
//
// A wildcard certificate needs neither this nor an order for each sandbox, and
// is the better choice where the DNS challenge can be had.
type Permission struct {
	// PanelHost is the hosts' pattern, as in the panel handler.
	PanelHost string `json:"panel_host,omitempty"`

	pattern hostPattern
	app     *App
}

// CaddyModule returns the Caddy module information.
func (Permission) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "tls.permission.cubepod", New: func() caddy.Module { return new(Permission) }}
}

// Provision finds the app.
func (p *Permission) Provision(ctx caddy.Context) error {
	var ok bool
	if p.pattern, ok = parseHostPattern(p.PanelHost); !ok {
		return badHostPattern(p.PanelHost)
	}
	app, err := ctx.AppIfConfigured("cubepod")
	if err != nil {
		return fmt.Errorf("the cubepod global option is needed: %w", err)
	}
	p.app = app.(*App)
	return nil
}

// CertificateAllowed allows the hosts of sandboxes that are not deleted.
func (p *Permission) CertificateAllowed(ctx context.Context, name string) error {
	id, ok := p.pattern.sandbox(name)
	if !ok {
		return fmt.Errorf("%s: %w: no sandbox's host", name, caddytls.ErrPermissionDenied)
	}
	rec, err := p.app.state.records.get(ctx, id)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", name, caddytls.ErrPermissionDenied, err)
	}
	if rec.State == session.Deleted || rec.State == session.Deleting {
		return fmt.Errorf("%s: %w: the sandbox was deleted", name, caddytls.ErrPermissionDenied)
	}
	return nil
}

// UnmarshalCaddyfile reads the pattern.
func (p *Permission) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the module's name
	if !d.AllArgs(&p.PanelHost) {
		return d.ArgErr()
	}
	if _, ok := parseHostPattern(p.PanelHost); !ok {
		return d.WrapErr(badHostPattern(p.PanelHost))
	}
	return nil
}

func badHostPattern(s string) error {
	return fmt.Errorf("panel_host %q: want a host such as {sandbox}.panels.example.com", s)
}

// Interface guards.
var (
	_ caddy.Provisioner           = (*Permission)(nil)
	_ caddyfile.Unmarshaler       = (*Permission)(nil)
	_ caddytls.OnDemandPermission = (*Permission)(nil)
)
