package caddymodule

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

// parseGlobalOption reads the global option:
//
//	cubepod {
//	    redis           <url>
//	    panel_keys      <file>
//	    tunnel_key      <file>
//	    allow_upstream  <prefixes...>
//	    sandbox_network <prefixes...>
//	    local_sockets   <directory>
//	    api             <url>
//	    max_per_sandbox <number>
//	    max_per_client  <number>
//	    max_failures    <number>
//	}
func parseGlobalOption(d *caddyfile.Dispenser, existing any) (any, error) {
	if existing != nil {
		return nil, d.Err("cubepod is there twice")
	}
	a := new(App)
	d.Next() // the option's name
	if d.NextArg() {
		return nil, d.ArgErr()
	}
	single := map[string]*string{
		"redis": &a.Redis, "panel_keys": &a.PanelKeys, "tunnel_key": &a.TunnelKey,
		"local_sockets": &a.LocalSockets, "api": &a.API,
	}
	lists := map[string]*[]string{"allow_upstream": &a.AllowUpstream, "sandbox_network": &a.SandboxNetwork}
	numbers := map[string]*int{"max_per_sandbox": &a.MaxPerSandbox, "max_per_client": &a.MaxPerClient, "max_failures": &a.MaxFailures}
	for d.NextBlock(0) {
		name := d.Val()
		if number, ok := numbers[name]; ok {
			var v string
			if !d.AllArgs(&v) {
				return nil, d.ArgErr()
			}
			n, err := strconv.Atoi(v)
			if err != nil || n == 0 {
				return nil, d.Errf("%s %q: want a number, or -1 for no bound", name, v)
			}
			*number = n
			continue
		}
		if list, ok := lists[name]; ok {
			args := d.RemainingArgs()
			if len(args) == 0 {
				return nil, d.ArgErr()
			}
			*list = append(*list, args...)
			continue
		}
		value, ok := single[name]
		if !ok {
			return nil, d.Errf("unknown option %q of cubepod", name)
		}
		if *value != "" {
			return nil, d.Errf("%s is there twice", name)
		}
		if !d.AllArgs(value) {
			return nil, d.ArgErr()
		}
	}
	return httpcaddyfile.App{Name: "cubepod", Value: caddyconfig.JSON(a, nil)}, nil
}

// parseDirective reads the directive, and gives a handler and the
// reverse_proxy behind it:
//
//	cubepod_panel [<prefix>] {
//	    shared_origin   trusted
//	    frame_ancestors <origins...>
//	    wake_wait       <duration>
//	    panel_host      <pattern>
//	    guest_host      <ports...>|*
//	    tracing         [<options of Caddy's tracing>]
//	    <any subdirective of reverse_proxy that names no upstream>
//	}
func parseDirective(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	p := &Panel{Prefix: defaultPrefix}
	var tracing json.RawMessage
	h.Next() // the directive's name
	d := h.NewFromNextSegment()
	if err := p.unmarshal(d, &tracing); err != nil {
		return nil, err
	}
	if err := p.Validate(); err != nil {
		return nil, d.WrapErr(err)
	}
	d.Reset()
	proxy, err := parseProxy(h, d)
	if err != nil {
		return nil, err
	}
	route := caddyhttp.Route{
		MatcherSetsRaw: []caddy.ModuleMap{{"cubepod_panel": caddyconfig.JSON(Matcher{Prefix: p.Prefix, PanelHost: p.PanelHost}, nil)}},
		HandlersRaw:    []json.RawMessage{caddyconfig.JSONModuleObject(p, "handler", "cubepod_panel", nil)},
	}
	if tracing != nil {
		route.HandlersRaw = append(route.HandlersRaw, tracing)
	}
	route.HandlersRaw = append(route.HandlersRaw, caddyconfig.JSONModuleObject(proxy, "handler", "reverse_proxy", nil))
	return []httpcaddyfile.ConfigValue{{Class: "route", Value: route}}, nil
}

// unmarshal reads what is the panel's and deletes it from d, so that the rest
// is reverse_proxy's. In tracing it leaves the handler that stands between both.
func (p *Panel) unmarshal(d *caddyfile.Dispenser, tracing *json.RawMessage) error {
	for d.Next() {
		if args := d.RemainingArgs(); len(args) == 1 {
			p.Prefix = args[0]
			d.Delete()
		} else if len(args) > 1 {
			return d.ArgErr()
		}
		for d.NextBlock(0) {
			if d.Nesting() != 1 {
				continue
			}
			switch name := d.Val(); name {
			case "shared_origin":
				if !d.AllArgs(&p.SharedOrigin) {
					return d.ArgErr()
				}
				d.DeleteN(2)
			case "frame_ancestors":
				args := d.RemainingArgs()
				if len(args) == 0 {
					return d.ArgErr()
				}
				p.FrameAncestors = append(p.FrameAncestors, args...)
				d.DeleteN(1 + len(args))
			case "wake_wait":
				var v string
				if !d.AllArgs(&v) {
					return d.ArgErr()
				}
				wait, err := caddy.ParseDuration(v)
				if err != nil || wait <= 0 {
					return d.Errf("wake_wait %q is no duration", v)
				}
				p.WakeWait = caddy.Duration(wait)
				d.DeleteN(2)
			case "panel_host":
				if !d.AllArgs(&p.PanelHost) {
					return d.ArgErr()
				}
				d.DeleteN(2)
			case "guest_host":
				args := d.RemainingArgs()
				if len(args) == 0 {
					return d.ArgErr()
				}
				p.GuestHost = append(p.GuestHost, args...)
				d.DeleteN(1 + len(args))
			case "tracing":
				tokens := d.NextSegment()
				d.DeleteN(len(tokens))
				own := caddyfile.NewDispenser(tokens)
				own.Next()
				mod, err := caddyfile.UnmarshalModule(own, "http.handlers.tracing")
				if err != nil {
					return err
				}
				*tracing = caddyconfig.JSONModuleObject(mod, "handler", "tracing", nil)
			case "to", "dynamic":
				return d.Errf("a panel's upstream is its sandbox: %s does not apply", name)
			}
		}
	}
	return nil
}

// streamCloseDelay lets streams outlive a configuration: their end is the
// token's, a day away at most.
const streamCloseDelay = 24*time.Hour + time.Minute

// streamBufferSize is small: most panels are open and quiet.
const streamBufferSize = 4096

func parseProxy(h httpcaddyfile.Helper, d *caddyfile.Dispenser) (*reverseproxy.Handler, error) {
	proxy := &reverseproxy.Handler{
		DynamicUpstreamsRaw: caddyconfig.JSONModuleObject(Upstreams{}, "source", "cubepod", nil),
		StreamCloseDelay:    caddy.Duration(streamCloseDelay),
		StreamBufferSize:    streamBufferSize,
	}
	if err := proxy.UnmarshalCaddyfile(d); err != nil {
		return nil, err
	}
	if err := proxy.FinalizeUnmarshalCaddyfile(h); err != nil {
		return nil, err
	}
	if proxy.TransportRaw == nil {
		proxy.TransportRaw = json.RawMessage(`{"protocol":"cubepod"}`)
	}
	var transport struct {
		Protocol string `json:"protocol"`
	}
	if err := json.Unmarshal(proxy.TransportRaw, &transport); err != nil || transport.Protocol != "cubepod" {
		return nil, h.Err("a panel's transport is cubepod")
	}
	// Health is kept per upstream, and for Caddy all sandboxes are one: a
	// closed port of one would take all down.
	if proxy.HealthChecks != nil {
		return nil, h.Err("panels have no health checks")
	}
	return proxy, nil
}
