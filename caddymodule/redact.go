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

// redacted stands for a secret in logs.
const redacted = "REDACTED"

// minPart is how long the header and the payload of a token are at least.
const minPart = 16

// keyPattern is what API keys that the session API made look like: base32 behind
// a prefix.
var keyPattern = regexp.MustCompile(`cp_[A-Z2-7]{16,}`)

// redact replaces every token and every API key in s.
func redact(s string) string {
	s = redactTokens(s)
	if !strings.Contains(s, "cp_") {
		return s // nearly always, and much faster
	}
	return keyPattern.ReplaceAllLiteralString(s, redacted)
}

// redactTokens replaces every token in s: a compact JWS, whose header is a JSON object
// and so begins with "eyJ" in base64, or "ey" or "ew" with white space in it.
// What is in front of it does not matter, as a token may follow "%2F". Dots may
// be escaped.
func redactTokens(s string) string {
	var out strings.Builder
	done := 0
	for at := 0; at+2*minPart < len(s); {
		i := strings.IndexByte(s[at:], 'e')
		if i < 0 {
			break
		}
		at += i
		end, ok := tokenEnd(s[at:])
		if !ok {
			at += max(end, 1) // so that a long text is read once or twice, not for each "e"
			continue
		}
		out.WriteString(s[done:at])
		out.WriteString(redacted)
		at += end
		done = at
	}
	if done == 0 {
		return s
	}
	out.WriteString(s[done:])
	return out.String()
}

// tokenEnd gives the length of the token that s begins with. Where there is
// none, it gives how much of s cannot begin one either.
func tokenEnd(s string) (int, bool) {
	if len(s) < 2 || s[1] != 'y' && s[1] != 'w' {
		return 0, false
	}
	header := base64Run(s)
	dot := escapedDot(s[header:])
	if header < minPart || dot == 0 {
		return header, false
	}
	payload := s[header+dot:]
	n := base64Run(payload)
	dot2 := escapedDot(payload[n:])
	if n < minPart || dot2 == 0 {
		return header, false
	}
	return header + dot + n + dot2 + base64Run(payload[n+dot2:]), true
}

// base64Run is the length of what s begins with in URL-safe base64.
func base64Run(s string) int {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return i
		}
	}
	return len(s)
}

func escapedDot(s string) int {
	if strings.HasPrefix(s, ".") {
		return 1
	}
	if len(s) >= 3 && s[0] == '%' && s[1] == '2' && (s[2] == 'E' || s[2] == 'e') {
		return 3
	}
	return 0
}

// TokenFilter is a log field filter that replaces panel tokens and API keys in
// single fields.
// [TokenEncoder] does so in whole entries, which is safer.
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
