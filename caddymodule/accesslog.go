package caddymodule

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// accessLog writes the access log's entries of panel requests.
//
// Caddy keeps a copy of each request before any handler sees it, and writes
// that copy, token and all, to the access log and to the error log. So a panel
// request is left out there, its errors are answered here, and this log writes
// the entry instead: to the same loggers, with the same fields, without the
// token, and with the sandbox, its port and why the edge ended a stream. (Fields
// of the log_append directive are Caddy's own and missing.)
type accessLog struct{ logger *zap.Logger }

// accessModule gives the logger that Caddy's HTTP servers use.
type accessModule struct{}

// CaddyModule names the access log; nothing registers it.
func (accessModule) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.log.access", New: func() caddy.Module { return new(accessModule) }}
}

func newAccessLog(ctx caddy.Context) *accessLog {
	return &accessLog{logger: ctx.Logger(accessModule{})}
}

// entry collects one request's entry.
type entry struct {
	log     *accessLog
	start   time.Time
	request *http.Request // without the token
	server  *caddyhttp.Server
	body    *countingBody
}

// begin takes r out of Caddy's own log and gives the entry that replaces it,
// nil where r is not to be logged.
func (l *accessLog) begin(r *http.Request, uri string) *entry {
	if skip, ok := caddyhttp.GetVar(r.Context(), caddyhttp.LogSkipVar).(bool); ok && skip {
		return nil
	}
	caddyhttp.SetVar(r.Context(), caddyhttp.LogSkipVar, true)
	server, _ := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if server == nil || !logged(server.Logs, r.Host) {
		return nil
	}
	e := &entry{log: l, start: time.Now(), server: server, request: r.Clone(r.Context())}
	e.request.RequestURI = uri
	for _, values := range e.request.Header {
		rewrite(values, redact)
	}
	if r.Body != nil {
		e.body = &countingBody{ReadCloser: r.Body}
		r.Body = e.body
	}
	return e
}

// write writes the entry, once the response is complete.
func (e *entry) write(w *responseWriter) {
	ctx := e.request.Context()
	level := zapcore.InfoLevel
	if w.status >= 500 {
		level = zapcore.ErrorLevel
	}
	if name, ok := caddyhttp.GetVar(ctx, caddyhttp.LogLevelVar).(string); ok {
		if l, err := zapcore.ParseLevel(name); err == nil && l >= zapcore.DebugLevel && l <= zapcore.ErrorLevel {
			level = l
		}
	}
	credentials := e.server.Logs.ShouldLogCredentials
	var fields []zap.Field
	for _, name := range loggerNames(e.server.Logs, e.request) {
		c := e.log.logger.Named(name).Check(level, "handled request")
		if c == nil {
			continue
		}
		if fields == nil {
			header := w.Header().Clone()
			for _, values := range header {
				rewrite(values, redact)
			}
			user := ""
			if repl, ok := ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
				user, _ = repl.GetString("http.auth.user.id")
			}
			fields = []zap.Field{
				zap.Object("request", caddyhttp.LoggableHTTPRequest{Request: e.request, ShouldLogCredentials: credentials}),
				zap.Int64("bytes_read", e.body.count()),
				zap.String("user_id", user),
				zap.Duration("duration", time.Since(e.start)),
				zap.Int64("size", w.size),
				zap.Int("status", w.status),
				zap.Object("resp_headers", caddyhttp.LoggableHTTPHeader{Header: header, ShouldLogCredentials: credentials}),
			}
			fields = append(fields, panelFields(ctx, w.visit)...)
		}
		c.Write(fields...)
	}
}

// panelFields are what an entry of a panel has besides Caddy's own fields: what
// it was for, why the edge ended it, if it did, and the span of Caddy's tracing.
func panelFields(ctx context.Context, v *visit) (fields []zap.Field) {
	if v != nil {
		fields = append(fields, zap.String("sandbox", string(v.sid)), zap.Int("port", v.port))
		if e := v.why(); e != nil {
			fields = append(fields, zap.String("ended", e.reason))
		}
	}
	for _, f := range []struct{ variable, field string }{{"trace_id", "traceID"}, {"span_id", "spanID"}} {
		if id, ok := caddyhttp.GetVar(ctx, f.variable).(string); ok {
			fields = append(fields, zap.String(f.field, id))
		}
	}
	return fields
}

// logged reports whether a server logs requests for host.
func logged(logs *caddyhttp.ServerLogConfig, host string) bool {
	if logs == nil {
		return false
	}
	host = withoutPort(host)
	for name := range logs.LoggerNames {
		if certmagic.MatchWildcard(host, name) {
			return true
		}
	}
	for _, skip := range logs.SkipHosts {
		if certmagic.MatchWildcard(host, skip) {
			return false
		}
	}
	return !logs.SkipUnmappedHosts
}

// loggerNames are the names, below "http.log.access", that a request goes to.
func loggerNames(logs *caddyhttp.ServerLogConfig, r *http.Request) []string {
	if names, ok := caddyhttp.GetVar(r.Context(), caddyhttp.AccessLoggerNameVarKey).([]any); ok {
		var out []string
		for _, n := range names {
			if s, ok := n.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}
	host := strings.ToLower(withoutPort(r.Host))
	if names, ok := logs.LoggerNames[host]; ok {
		return names
	}
	labels := strings.Split(host, ".")
	for i := range labels {
		if labels[i] == "" {
			continue
		}
		labels[i] = "*"
		if names, ok := logs.LoggerNames[strings.Join(labels, ".")]; ok {
			return names
		}
	}
	return []string{logs.DefaultLoggerName}
}

func withoutPort(hostport string) string {
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		return h
	}
	return hostport
}

// countingBody counts what is read of a request's body.
type countingBody struct {
	io.ReadCloser
	n int64
}

// Read reads and counts.
func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	return n, err
}

func (b *countingBody) count() int64 {
	if b == nil {
		return 0
	}
	return b.n
}
