package sessionapi

import (
	"context"
	"crypto/rand"
	"net/http"
	"regexp"
	"runtime/debug"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/session"
)

// note is what handlers leave for the access log.
type note struct {
	id      string
	route   string // the pattern that the request matched, or unknownRoute
	sandbox session.ID
	caller  string
	err     error
}

// unknownRoute is what logs and metrics say of a request that no route takes.
const unknownRoute = "(unknown)"

type noteKey struct{}

func noteOf(ctx context.Context) *note {
	if n, ok := ctx.Value(noteKey{}).(*note); ok {
		return n
	}
	return &note{}
}

var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// observe gives each request an id, survives a handler that panics, and logs
// and measures the answer. Neither paths nor query strings are logged, only the
// route: both can hold secrets.
func (a *api) observe(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := &note{id: r.Header.Get("X-Request-ID")}
		if !requestIDPattern.MatchString(n.id) {
			n.id = rand.Text()
		}
		w.Header().Set("X-Request-ID", n.id)
		r = r.WithContext(context.WithValue(r.Context(), noteKey{}, n))
		began := time.Now()
		_, pattern := mux.Handler(r)
		if n.route = pattern; pattern == "" {
			n.route = unknownRoute
		}
		sw := &statusWriter{ResponseWriter: w}
		defer func() {
			p := recover()
			if p != nil && p != http.ErrAbortHandler {
				a.log.Error("handler panicked", append(logFields(r, n), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))...)
				if sw.status == 0 {
					apierror.Write(sw, apierror.New(apierror.Internal, "", "an internal error; the log has its cause"))
					p = nil
				} else {
					p = http.ErrAbortHandler // half an answer must not look whole
				}
			}
			a.answered(r, n, sw, time.Since(began))
			if p != nil {
				panic(p)
			}
		}()
		if pattern == "" {
			unmatched(mux, sw, r)
			return
		}
		mux.ServeHTTP(sw, r)
	})
}

func (a *api) answered(r *http.Request, n *note, sw *statusWriter, took time.Duration) {
	status := sw.status
	if status == 0 {
		status = http.StatusOK
	}
	a.metrics.answered(n.route, status, took)
	level := zapcore.InfoLevel
	switch {
	case apierror.KindOf(n.err) == apierror.Internal:
		level = zapcore.ErrorLevel
	case status >= 500:
		level = zapcore.WarnLevel
	case n.route == "GET /health", n.route == "GET /ready":
		level = zapcore.DebugLevel
	}
	if ce := a.log.Check(level, "request"); ce != nil {
		f := append(logFields(r, n), zap.Int("status", status), zap.Int64("bytes", sw.bytes), zap.Duration("duration", took))
		if n.err != nil {
			f = append(f, zap.Error(n.err))
		}
		ce.Write(f...)
	}
}

// statusWriter remembers what was answered. It unwraps, so that streaming and
// deadlines work through it.
type statusWriter struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}
