package caddymodule

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"html/template"
	"net/http"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/cubeplexai/cubepod/internal/apierror"
)

//go:embed page.html
var pageSource string

var page = template.Must(template.New("page").Parse(pageSource))

// pagePolicy is the CSP of the edge's own pages. Scripts are allowed only
// because a frame without them ignores the page's refresh.
const pagePolicy = "default-src 'none'; style-src 'unsafe-inline'"

// client is who asks, as far as it decides how to answer.
type client struct {
	navigation bool // a person follows a link or opens a frame
	browser    bool // some other request of a page
}

// clientOf reads the fetch metadata of r. Over plain HTTP some browsers send
// none; a WebSocket's Origin gives them away.
func clientOf(r *http.Request) client {
	if r.Header.Get("Sec-Fetch-Mode") == "navigate" {
		prefetch := r.Header.Get("Sec-Purpose") != ""
		return client{navigation: !prefetch, browser: prefetch}
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "Sec-Fetch-") {
			return client{browser: true}
		}
	}
	upgrade := isWebSocket(r) || extendedWebSocket(r)
	return client{browser: upgrade && r.Header.Get("Origin") != ""}
}

// wantsPage reports whether r is answered with a page: for navigations, and for
// browsers too old or too insecure to say that they navigate.
func wantsPage(r *http.Request) bool {
	c := clientOf(r)
	if c.navigation || c.browser {
		return c.navigation
	}
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// answerError sends e as a page or as JSON.
func answerError(w http.ResponseWriter, r *http.Request, e *apierror.Error) {
	if !wantsPage(r) {
		apierror.Write(w, e)
		return
	}
	var body bytes.Buffer
	data := struct {
		Title, Message, Code string
		Refresh              int
	}{titleOf(e), e.Detail, e.WireCode(), 0}
	if e == errWaking {
		data.Refresh = 2
	}
	if err := page.Execute(&body, data); err != nil {
		apierror.Write(w, e)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", pagePolicy)
	e.SetRetryAfter(h)
	w.WriteHeader(e.Status())
	if r.Method != http.MethodHead {
		_, _ = w.Write(body.Bytes()) // a client that left is no fault of ours
	}
}

func titleOf(e *apierror.Error) string {
	switch e.WireCode() {
	case "sandbox_starting":
		return "Starting the sandbox"
	case "sandbox_paused", "wake_failed":
		return "The sandbox is paused"
	case "token_expired", "token_revoked", "token_invalid":
		return "This link does not work"
	case "port_closed", "port_timeout", "port_unreachable":
		return "Nothing to see here yet"
	}
	return http.StatusText(e.Status())
}

// answerPreflight answers a CORS preflight: documents of panels have an opaque
// origin, so what they ask of their own guest is cross-origin to the browser.
func answerPreflight(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", r.Header.Get("Access-Control-Request-Method"))
	if names := r.Header.Get("Access-Control-Request-Headers"); names != "" {
		h.Set("Access-Control-Allow-Headers", names)
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}

func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

// errorOf gives the client's view of an error that reverse_proxy or a handler
// behind the panel returned.
func errorOf(err error) *apierror.Error {
	if e, ok := errors.AsType[*apierror.Error](err); ok {
		return e
	}
	he, ok := errors.AsType[caddyhttp.HandlerError](err)
	if !ok {
		return apierror.From(err)
	}
	switch he.StatusCode {
	case http.StatusGatewayTimeout:
		return apierror.Wrap(err, apierror.Timeout, "port_timeout", "the sandbox did not answer in time")
	case http.StatusServiceUnavailable:
		return apierror.Wrap(err, apierror.Unavailable, "upstream_unavailable", "the sandbox cannot be reached now")
	case apierror.ClientGone.Status():
		return apierror.Wrap(err, apierror.ClientGone, "", "the client went away")
	case http.StatusRequestEntityTooLarge:
		return apierror.Wrap(err, apierror.TooLarge, "", "the request is too large")
	}
	return apierror.Wrap(err, apierror.BadGateway, "upstream_failed", "the sandbox broke off its answer")
}

// answerByRoutes runs the operator's handle_errors routes, if there are any.
// They see the request as it came, but for its token, and may leave the answer
// to others.
func answerByRoutes(w http.ResponseWriter, r *http.Request, e *apierror.Error, uri string) error {
	srv, _ := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if srv == nil || srv.Errors == nil || len(srv.Errors.Routes) == 0 {
		return nil
	}
	if err := retarget(r, uri); err != nil {
		return err
	}
	r = srv.Errors.WithError(r, caddyhttp.Error(e.Status(), e))
	answer := &errorRouteWriter{ResponseWriter: w}
	nothing := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil })
	return srv.Errors.Routes.Compile(nothing).ServeHTTP(answer, r)
}

// errorRouteWriter holds a status back until a body comes. Caddy sends a bare
// status where no error route matches, and the panel's own answer is better.
type errorRouteWriter struct {
	http.ResponseWriter
	status int
}

// Unwrap lets an http.ResponseController find what is not here.
func (w *errorRouteWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader notes the status.
func (w *errorRouteWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

// Write sends the status first.
func (w *errorRouteWriter) Write(p []byte) (int, error) {
	w.ResponseWriter.WriteHeader(cmp.Or(w.status, http.StatusOK))
	return w.ResponseWriter.Write(p)
}
