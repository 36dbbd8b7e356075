package caddymodule

import (
	"regexp"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/logging"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// redacted stands for a token in logs.
const redacted = "REDACTED"

// tokenPattern is a compact JWS: its header is a JSON object, so it begins with
// "eyJ" in base64, or "ey" or "ew" with white space in it. Dots may be escaped.
var tokenPattern = regexp.MustCompile(`\be[wy][A-Za-z0-9_-]{14,}(?:\.|%2[Ee])[A-Za-z0-9_-]{16,}(?:\.|%2[Ee])[A-Za-z0-9_-]*`)

// redact replaces every token in s.
func redact(s string) string {
	if !strings.Contains(s, "ey") && !strings.Contains(s, "ew") {
		return s
	}
	return tokenPattern.ReplaceAllLiteralString(s, redacted)
}

// TokenFilter is a log field filter that replaces panel tokens, for logs that
// other handlers write. The panel's own log entries need none.
//
//	format filter {
//	    request>uri cubepod_token
//	    request>headers>Referer cubepod_token
//	}
type TokenFilter struct{}

// CaddyModule returns the Caddy module information.
func (TokenFilter) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.logging.encoders.filter.cubepod_token", New: func() caddy.Module { return new(TokenFilter) }}
}

// UnmarshalCaddyfile reads the filter's name; it takes nothing else.
func (*TokenFilter) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		return d.ArgErr()
	}
	return nil
}

// Filter replaces the tokens in a text field or an array of texts.
func (TokenFilter) Filter(in zapcore.Field) zapcore.Field {
	switch in.Type {
	case zapcore.StringType:
		in.String = redact(in.String)
	case zapcore.ArrayMarshalerType:
		if list, ok := in.Interface.(caddyhttp.LoggableStringArray); ok {
			out := make(caddyhttp.LoggableStringArray, len(list))
			for i, s := range list {
				out[i] = redact(s)
			}
			in.Interface = out
		}
	case zapcore.ErrorType:
		if err, ok := in.Interface.(error); ok {
			return zap.String(in.Key, redact(err.Error()))
		}
	}
	return in
}

// Interface guards.
var (
	_ logging.LogFieldFilter = TokenFilter{}
	_ caddyfile.Unmarshaler  = (*TokenFilter)(nil)
)
