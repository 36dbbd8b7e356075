package caddymodule

import (
	"context"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// scrubTrace takes the tokens out of what the span of ctx tells of the request
// r, whose address is logged as logURI.
//
// A panel's subdirective tracing begins its span behind the panel, with the path
// that the guest sees. But a site may have a tracing of its own in front of all,
// whose span begins with the path as the client sent it; and an operator may add
// attributes made of placeholders, which are filled in once the request is over.
// What is exported is an attribute's last value.
func scrubTrace(ctx context.Context, r *http.Request, logURI string) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	scrubSpan(span)
	if uri := r.URL.RequestURI(); redact(uri) != uri {
		_ = retarget(r, redact(uri))
	}
	for _, values := range r.Header {
		rewrite(values, redact)
	}
	if original, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok {
		_ = retarget(&http.Request{URL: original.URL}, logURI) // shared by the placeholders of its parts
	}
	if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		repl.Set("http.request.orig_uri", logURI)
	}
}

// scrubSpan takes the tokens out of a span's name and of what attributes it has.
func scrubSpan(span trace.Span) {
	held, ok := span.(interface { // which the SDK's spans have
		Name() string
		Attributes() []attribute.KeyValue
	})
	if !ok {
		return
	}
	if name := held.Name(); redact(name) != name {
		span.SetName(redact(name))
	}
	for _, a := range held.Attributes() {
		if v := a.Value.String(); redact(v) != v {
			span.SetAttributes(a.Key.String(redact(v)))
		}
	}
}
