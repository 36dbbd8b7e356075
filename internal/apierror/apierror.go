// Package apierror is the one error shape that every CubePod program puts on
// the wire: {"code":404,"error":"sandbox_not_found","message":"…"}.
//
// Code that can name what went wrong returns an *Error; everything else is
// returned plainly wrapped and reaches the client as an internal error without
// detail. Logging is left to the caller of [Write].
package apierror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Kind is the class of an error. It decides the HTTP status.
type Kind string

// The kinds and, in the comment, their status.
const (
	Invalid          Kind = "invalid"              // 400
	Unauthorized     Kind = "unauthorized"         // 401
	Forbidden        Kind = "forbidden"            // 403
	NotFound         Kind = "not_found"            // 404
	MethodNotAllowed Kind = "method_not_allowed"   // 405
	Conflict         Kind = "conflict"             // 409
	Gone             Kind = "gone"                 // 410
	TooLarge         Kind = "too_large"            // 413
	UnsupportedMedia Kind = "unsupported_media"    // 415
	Unsupported      Kind = "unsupported"          // 422
	TooMany          Kind = "too_many"             // 429
	ClientGone       Kind = "client_gone"          // 499, for the log only
	Internal         Kind = "internal"             // 500
	BadGateway       Kind = "bad_gateway"          // 502
	Unavailable      Kind = "unavailable"          // 503
	Timeout          Kind = "timeout"              // 504
	NoSpace          Kind = "insufficient_storage" // 507
)

var statuses = map[Kind]int{
	Invalid:          http.StatusBadRequest,
	Unauthorized:     http.StatusUnauthorized,
	Forbidden:        http.StatusForbidden,
	NotFound:         http.StatusNotFound,
	MethodNotAllowed: http.StatusMethodNotAllowed,
	Conflict:         http.StatusConflict,
	Gone:             http.StatusGone,
	TooLarge:         http.StatusRequestEntityTooLarge,
	UnsupportedMedia: http.StatusUnsupportedMediaType,
	Unsupported:      http.StatusUnprocessableEntity,
	TooMany:          http.StatusTooManyRequests,
	ClientGone:       499,
	Internal:         http.StatusInternalServerError,
	BadGateway:       http.StatusBadGateway,
	Unavailable:      http.StatusServiceUnavailable,
	Timeout:          http.StatusGatewayTimeout,
	NoSpace:          http.StatusInsufficientStorage,
}

// Status is the HTTP status of k; an unknown kind is 500.
func (k Kind) Status() int {
	if s, ok := statuses[k]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// Error is an error the caller may see.
type Error struct {
	Kind Kind
	// Code is the wire's "error", a stable snake_case word. Empty means the
	// Kind's own name.
	Code string
	// Detail is the wire's "message", a sentence for people.
	Detail string
	// RetryAfter, when set, becomes the Retry-After header, rounded up to
	// whole seconds.
	RetryAfter time.Duration
	// Err is the cause. It is for the log and never leaves the program.
	Err error
}

// New returns an *Error of kind k with a formatted message. A cause goes to
// [Wrap].
func New(k Kind, code, format string, args ...any) *Error {
	return &Error{Kind: k, Code: code, Detail: fmt.Sprintf(format, args...)}
}

// Wrap returns an *Error with a cause for the log.
func Wrap(err error, k Kind, code, format string, args ...any) *Error {
	e := New(k, code, format, args...)
	e.Err = err
	return e
}

// Error gives the message and, for the log, the cause.
func (e *Error) Error() string {
	s := e.Detail
	if s == "" {
		s = e.WireCode()
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Status is the HTTP status of e.
func (e *Error) Status() int { return e.Kind.Status() }

// WireCode is the stable word sent as "error".
func (e *Error) WireCode() string {
	if e.Code != "" {
		return e.Code
	}
	return string(e.Kind)
}

// KindOf finds the kind of err. A nil error has none; an error without an
// *Error in its chain is Internal.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	return From(err).Kind
}

// From finds the *Error in err's chain, or makes one without detail of what
// has none: ClientGone for a cancelled context, Timeout for an expired one,
// Internal for the rest.
func From(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	switch {
	case errors.Is(err, context.Canceled):
		return Wrap(err, ClientGone, "", "the client went away")
	case errors.Is(err, context.DeadlineExceeded):
		return Wrap(err, Timeout, "", "the work did not finish in time")
	}
	return Wrap(err, Internal, "", "an internal error; the log has its cause")
}

// Body is the wire form.
type Body struct {
	Code    int    `json:"code"`
	Error   string `json:"error"`
	Message string `json:"message"`
}

// Body gives e's wire form.
func (e *Error) Body() Body {
	return Body{Code: e.Status(), Error: e.WireCode(), Message: e.Detail}
}

// Write sends err as JSON and returns what it sent, so that the caller can
// log the cause. The status line must not have been written yet.
func Write(w http.ResponseWriter, err error) *Error {
	e := From(err)
	body, _ := json.Marshal(e.Body()) // two strings and an int cannot fail
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	e.SetRetryAfter(h)
	if e.Kind == Unauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	w.WriteHeader(e.Status())
	_, _ = w.Write(append(body, '\n')) // a client that left is no fault of ours
	return e
}

// SetRetryAfter sets the Retry-After header when e has one.
func (e *Error) SetRetryAfter(h http.Header) {
	if e.RetryAfter > 0 {
		secs := (e.RetryAfter + time.Second - 1) / time.Second
		h.Set("Retry-After", strconv.FormatInt(int64(secs), 10))
	}
}

// maxBody bounds what Read takes of an error response.
const maxBody = 64 << 10

// Read gives back the error that the other side sent with [Write]. A body of
// another shape yields an *Error with the status' kind and the code
// "unexpected_response". It reads, but does not close, resp.Body.
func Read(resp *http.Response) *Error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	var b Body
	if err == nil && json.Unmarshal(data, &b) == nil && b.Error != "" {
		e := &Error{Kind: kindOfStatus(resp.StatusCode), Code: b.Error, Detail: b.Message}
		if secs, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && secs > 0 {
			e.RetryAfter = time.Duration(secs) * time.Second
		}
		return e
	}
	return Wrap(err, kindOfStatus(resp.StatusCode), "unexpected_response", "the other side answered %s", resp.Status)
}

func kindOfStatus(status int) Kind {
	for k, s := range statuses {
		if s == status {
			return k
		}
	}
	if status >= 400 && status < 500 {
		return Invalid
	}
	return Internal
}
