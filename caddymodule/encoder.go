package caddymodule

import (
	"encoding/json"
	"fmt"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/logging"
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"
)

// TokenEncoder is a log encoder that replaces panel tokens and API keys wherever
// they stand in what another encoder wrote, and the values of header fields that
// carry credentials. The panel's own logs, and reverse_proxy's behind it, have no
// tokens; this is for the rest of the process, such as the redirects from HTTP to
// HTTPS, which see a panel's URL before the panel does, and the proxy in front of
// the API, which logs the headers of a request that breaks off.
//
//	{
//	    log {
//	        format cubepod_token [<another format>]
//	    }
//	}
//
// The other format is json, or console where the log goes to a terminal.
type TokenEncoder struct {
	// WrappedRaw is the encoder whose output is filtered.
	WrappedRaw json.RawMessage `json:"wrap,omitempty" caddy:"namespace=caddy.logging.encoders inline_key=format"`

	zapcore.Encoder `json:"-"`
}

// CaddyModule returns the Caddy module information.
func (TokenEncoder) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.logging.encoders.cubepod_token", New: func() caddy.Module { return new(TokenEncoder) }}
}

// Provision sets up the other encoder.
func (e *TokenEncoder) Provision(ctx caddy.Context) error {
	if e.WrappedRaw == nil {
		plain := new(logging.FilterEncoder) // without filters it is just Caddy's default format
		e.Encoder = plain
		return plain.Provision(ctx)
	}
	v, err := ctx.LoadModule(e, "WrappedRaw")
	if err != nil {
		return fmt.Errorf("load the wrapped format: %w", err)
	}
	e.Encoder = v.(zapcore.Encoder)
	return nil
}

// ConfigureDefaultFormat takes the console's format where people read.
func (e *TokenEncoder) ConfigureDefaultFormat(w caddy.WriterOpener) error {
	if f, ok := e.Encoder.(caddy.ConfiguresFormatterDefault); ok {
		return f.ConfigureDefaultFormat(w)
	}
	return nil
}

// Clone gives an encoder that adds to its own fields.
func (e *TokenEncoder) Clone() zapcore.Encoder { return &TokenEncoder{Encoder: e.Encoder.Clone()} }

// AddArray adds an array to all entries.
func (e *TokenEncoder) AddArray(name string, v zapcore.ArrayMarshaler) error {
	return fieldHider{e.Encoder}.AddArray(name, v)
}

// AddObject adds an object to all entries.
func (e *TokenEncoder) AddObject(name string, v zapcore.ObjectMarshaler) error {
	return fieldHider{e.Encoder}.AddObject(name, v)
}

// AddReflected adds anything to all entries.
func (e *TokenEncoder) AddReflected(name string, v any) error {
	return fieldHider{e.Encoder}.AddReflected(name, v)
}

// AddString adds a text to all entries.
func (e *TokenEncoder) AddString(name, v string) { fieldHider{e.Encoder}.AddString(name, v) }

// EncodeEntry writes an entry without secrets.
func (e *TokenEncoder) EncodeEntry(entry zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	buf, err := e.Encoder.EncodeEntry(entry, hideFields(fields))
	if err != nil {
		return buf, err
	}
	s := buf.String()
	if clean := redact(s); clean != s {
		buf.Reset()
		buf.AppendString(clean)
	}
	return buf, nil
}

// UnmarshalCaddyfile reads the other format, if any.
func (e *TokenEncoder) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the encoder's name
	if !d.NextArg() {
		return nil
	}
	name := d.Val()
	unm, err := caddyfile.UnmarshalModule(d, "caddy.logging.encoders."+name)
	if err != nil {
		return err
	}
	enc, ok := unm.(zapcore.Encoder)
	if !ok {
		return d.Errf("%s is no log format", name)
	}
	e.WrappedRaw = caddyconfig.JSONModuleObject(enc, "format", name, nil)
	return nil
}

// Interface guards.
var (
	_ caddy.Provisioner                = (*TokenEncoder)(nil)
	_ caddy.ConfiguresFormatterDefault = (*TokenEncoder)(nil)
	_ caddyfile.Unmarshaler            = (*TokenEncoder)(nil)
	_ zapcore.Encoder                  = (*TokenEncoder)(nil)
)
