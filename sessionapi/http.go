package sessionapi

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"log"
	"net/http"
	"strings"

	"go.uber.org/zap"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/session"
)

//go:embed openapi.yaml
var openAPI []byte

// api is the HTTP face of a Service.
type api struct {
	*Service
	keys     *APIKeys
	limits   *limits
	console  http.Handler
	buffers  bufferPool
	proxyLog *log.Logger
}

// route is one call of the API. Exactly one of its handlers is set.
type route struct {
	pattern string
	open    handler        // needs no key
	keyed   keyedHandler   // needs a key
	sandbox sandboxHandler // needs a key, and a sandbox that its caller may use
}

type (
	handler        func(http.ResponseWriter, *http.Request) error
	keyedHandler   func(http.ResponseWriter, *http.Request, Caller) error
	sandboxHandler func(http.ResponseWriter, *http.Request, *session.Record) error
)

// routes is everything the API serves, in the order of the contract.
func (a *api) routes() []route {
	routes := []route{
		{pattern: "POST /sandboxes", keyed: a.create},
		{pattern: "GET /sandboxes", keyed: a.listV1},
		{pattern: "POST /v2/sandboxes", keyed: a.create},
		{pattern: "GET /v2/sandboxes", keyed: a.listV2},
		{pattern: "GET /v2/sandboxes/events", keyed: a.events},
		{pattern: "GET /sandboxes/{sandboxID}", sandbox: a.get},
		{pattern: "DELETE /sandboxes/{sandboxID}", sandbox: a.delete},
		{pattern: "POST /sandboxes/{sandboxID}/pause", sandbox: a.pause},
		{pattern: "POST /sandboxes/{sandboxID}/resume", sandbox: a.resume},
		{pattern: "POST /sandboxes/{sandboxID}/connect", sandbox: a.connect},
		{pattern: "POST /v2/sandboxes/{sandboxID}/connect", sandbox: a.connect},
		{pattern: "POST /sandboxes/{sandboxID}/timeout", sandbox: a.timeout},
		{pattern: "POST /sandboxes/{sandboxID}/refreshes", sandbox: a.refresh},
		{pattern: "POST /sandboxes/{sandboxID}/desktop/start", sandbox: a.desktopStart},
		{pattern: "GET /sandboxes/{sandboxID}/desktop/status", sandbox: a.desktopStatus},
		{pattern: "POST /sandboxes/{sandboxID}/desktop/stop", sandbox: a.desktopStop},
		{pattern: "GET /sandboxes/{sandboxID}/ports", sandbox: a.ports},
		{pattern: "PUT /sandboxes/{sandboxID}/ports/{port}", sandbox: a.putPort},
		{pattern: "DELETE /sandboxes/{sandboxID}/ports/{port}", sandbox: a.deletePort},
		{pattern: "POST /sandboxes/{sandboxID}/panels", sandbox: a.panel},
		{pattern: "POST /sandboxes/{sandboxID}/panels/revoke", sandbox: a.revoke},
		{pattern: "POST /sandboxes/{sandboxID}/wake", open: a.wakeUp},
		{pattern: "GET /health", open: a.health},
		{pattern: "GET /ready", open: a.ready},
		{pattern: "GET /openapi.yaml", open: a.openAPI},
	}
	for _, call := range poddCalls {
		method, path, _ := strings.Cut(call, " ")
		routes = append(routes, route{pattern: method + " /sandboxes/{sandboxID}" + path, sandbox: a.podd})
	}
	if a.console != nil {
		routes = append(routes,
			route{pattern: "GET /{$}", open: a.page},
			route{pattern: "GET /console/", open: a.page})
	}
	return routes
}

// NewHandler returns the HTTP face of s. console serves "/" and "/console/";
// nil leaves them out.
func NewHandler(s *Service, keys *APIKeys, console http.Handler) http.Handler {
	a := &api{Service: s, keys: keys, limits: newLimits(s.opts.RateLimit), console: console}
	// What it has to say, about clients that left mostly, is in the access log.
	a.proxyLog, _ = zap.NewStdLogAt(s.log, zap.DebugLevel)
	mux := http.NewServeMux()
	for _, rt := range a.routes() {
		mux.Handle(rt.pattern, a.endpoint(rt))
	}
	return a.observe(mux)
}

// endpoint makes an http.Handler of a route: the caller, the sandbox, the call,
// its error.
func (a *api) endpoint(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.serve(rt, w, r); err != nil {
			a.fail(w, r, err)
		}
	})
}

func (a *api) serve(rt route, w http.ResponseWriter, r *http.Request) error {
	if rt.open != nil {
		return rt.open(w, r)
	}
	caller, err := a.keys.Caller(r)
	if err != nil {
		return err
	}
	noteOf(r.Context()).caller = caller.Name
	if err := a.limits.take(caller); err != nil {
		return err
	}
	if rt.keyed != nil {
		return rt.keyed(w, r, caller)
	}
	id, err := pathID(r)
	if err != nil {
		return err
	}
	noteOf(r.Context()).sandbox = id
	rec, err := a.Find(r.Context(), caller, id)
	if err != nil {
		return err
	}
	defer a.InUse(r.Context(), rec)()
	return rt.sandbox(w, r, rec)
}

// fail sends err, and keeps its cause for the access log.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	noteOf(r.Context()).err = err
	apierror.Write(w, err)
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false) // panel URLs are read by people too
	if err := enc.Encode(v); err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // a client that left is no error
	return nil
}

func noContent(w http.ResponseWriter, err error) error {
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

func (a *api) health(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

func (a *api) ready(w http.ResponseWriter, r *http.Request) error {
	if err := a.Ready(r.Context()); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, readyView{Status: "ready", Warnings: a.Warnings(r.Context())})
}

// readyView is the answer of a server that can work.
type readyView struct {
	Status   string   `json:"status"`
	Warnings []string `json:"warnings,omitempty"`
}

func (a *api) openAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(openAPI)
	return nil
}

func (a *api) page(w http.ResponseWriter, r *http.Request) error {
	a.console.ServeHTTP(w, r)
	return nil
}

// unmatched answers a request that no route takes, in the API's error form. It
// asks mux for the status: 404, or 405 with the methods there are.
func unmatched(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) {
	p := &probe{header: w.Header()}
	mux.ServeHTTP(p, r)
	if p.status == http.StatusMethodNotAllowed {
		h := w.Header()
		h.Set("Content-Type", "application/json")
		w.WriteHeader(p.status)
		_ = json.NewEncoder(w).Encode(apierror.Body{Code: p.status, Error: "method_not_allowed", Message: "use " + h.Get("Allow")})
		return
	}
	apierror.Write(w, apierror.New(apierror.NotFound, "", "there is nothing at this address"))
}

// probe keeps the status and headers of an answer and drops its body.
type probe struct {
	header http.Header
	status int
}

func (p *probe) Header() http.Header         { return p.header }
func (p *probe) WriteHeader(status int)      { p.status = status }
func (p *probe) Write(b []byte) (int, error) { return len(b), nil }

// logFields are what every line about a request has. The path is none of them:
// a client that took the API for the edge has sent it a panel's token there.
func logFields(r *http.Request, n *note) []zap.Field {
	f := []zap.Field{zap.String("request_id", n.id), zap.String("method", r.Method), zap.String("route", n.route)}
	if n.sandbox != "" {
		f = append(f, zap.String("sandbox", string(n.sandbox)))
	}
	if n.caller != "" {
		f = append(f, zap.String("user", n.caller))
	}
	return f
}
