package caddymodule

import (
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// secretFields are the names, in lower case, whose values no log shows. Caddy
// hides some of them itself, unless told to show credentials, but knows no API
// key. A WebSocket of a page has its bearer in the subprotocol, as a page can
// set no other header.
var secretFields = map[string]bool{
	"authorization": true, "proxy-authorization": true, "cookie": true, "set-cookie": true,
	"x-api-key": true, "sec-websocket-protocol": true,
}

func isSecretField(name string) bool { return secretFields[strings.ToLower(name)] }

// hideFields makes each field hide its secrets as it is added to an entry.
// Fields of plain numbers and the like are left alone.
func hideFields(fields []zapcore.Field) []zapcore.Field {
	out := make([]zapcore.Field, len(fields))
	for i, f := range fields {
		switch f.Type {
		case zapcore.ObjectMarshalerType, zapcore.InlineMarshalerType, zapcore.ArrayMarshalerType, zapcore.ReflectType, zapcore.StringType:
			out[i] = zap.Inline(zapcore.ObjectMarshalerFunc(func(enc zapcore.ObjectEncoder) error {
				f.AddTo(fieldHider{enc})
				return nil
			}))
		default:
			out[i] = f
		}
	}
	return out
}

// fieldHider is an encoder of an entry's fields, or of an object in it, that
// hides the values of secret ones.
type fieldHider struct{ zapcore.ObjectEncoder }

// AddArray adds the values of a header, say.
func (h fieldHider) AddArray(name string, v zapcore.ArrayMarshaler) error {
	if isSecretField(name) {
		v = caddyhttp.LoggableStringArray{redacted}
	}
	return h.ObjectEncoder.AddArray(name, v)
}

// AddObject adds an object that hides its own.
func (h fieldHider) AddObject(name string, v zapcore.ObjectMarshaler) error {
	return h.ObjectEncoder.AddObject(name, zapcore.ObjectMarshalerFunc(func(enc zapcore.ObjectEncoder) error {
		return v.MarshalLogObject(fieldHider{enc})
	}))
}

// AddReflected adds anything; a header becomes an object.
func (h fieldHider) AddReflected(name string, v any) error {
	switch header := v.(type) {
	case http.Header:
		return h.AddObject(name, caddyhttp.LoggableHTTPHeader{Header: header, ShouldLogCredentials: true})
	case map[string][]string:
		return h.AddObject(name, caddyhttp.LoggableHTTPHeader{Header: header, ShouldLogCredentials: true})
	}
	if isSecretField(name) {
		v = redacted
	}
	return h.ObjectEncoder.AddReflected(name, v)
}

// AddString adds a text.
func (h fieldHider) AddString(name, v string) {
	if isSecretField(name) {
		v = redacted
	}
	h.ObjectEncoder.AddString(name, v)
}
