package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/paneltoken"
	"github.com/cubeplexai/cubepod/internal/session"
)

const (
	defaultPrefix = "/panel"
	// defaultWakeWait is how long a program waits for a sandbox to wake.
	defaultWakeWait = 30 * time.Second
	// pageWait is how long a person waits before the page says so.
	pageWait = time.Second
	// quiet is how long a stream or an upload may pause. Its real end is the
	// token's.
	quiet = 25 * time.Hour
)

// Panel is the handler "cubepod_panel": it checks the token in a panel URL,
// finds the sandbox's port, and hands the request, without the token, to the
// reverse_proxy behind it.
type Panel struct {
	// Prefix is the path below which panels are. Default: /panel
	Prefix string `json:"prefix,omitempty"`
	// SharedOrigin "trusted" lets all panels share the origin they are on, with
	// its cookies and storage. By default each panel document is sandboxed into
	// an origin of its own.
	SharedOrigin string `json:"shared_origin,omitempty"`
	// FrameAncestors are the origins that may frame a panel. Default: any
	FrameAncestors []string `json:"frame_ancestors,omitempty"`
	// WakeWait is how long a client that is no browser waits for a paused
	// sandbox. Default: 30s
	WakeWait caddy.Duration `json:"wake_wait,omitempty"`
	// PanelHost is the pattern of the sandboxes' own hosts, such as
	// {sandbox}.panels.example.com. A link on another sandbox's host is refused.
	// Panels then have origins of their own, with cookies and storage, and need
	// no CSP sandbox; requests to a path outside the prefix go to the panel that
	// the page they come from belongs to.
	PanelHost string `json:"panel_host,omitempty"`
	// GuestHost are the ports, or "*", whose servers see their own address as
	// Host and Origin instead of the panel's: some development servers answer
	// no other. The desktop's ports always do.
	GuestHost []string `json:"guest_host,omitempty"`

	hosts      hostPattern
	guestPorts map[int]bool // 0 stands for all
	app        *App
	log        *accessLog
	logger     *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (Panel) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.cubepod_panel", New: func() caddy.Module { return new(Panel) }}
}

// Provision fills in defaults and finds the app.
func (p *Panel) Provision(ctx caddy.Context) error {
	p.logger = ctx.Logger()
	p.log = newAccessLog(ctx)
	if p.Prefix == "" {
		p.Prefix = defaultPrefix
	}
	if p.WakeWait == 0 {
		p.WakeWait = caddy.Duration(defaultWakeWait)
	}
	if p.PanelHost != "" {
		p.hosts, _ = parseHostPattern(p.PanelHost)
	}
	p.guestPorts = map[int]bool{}
	for _, s := range p.GuestHost {
		port, _ := strconv.Atoi(s) // 0 for *; Validate has the last word
		p.guestPorts[port] = true
	}
	app, err := ctx.AppIfConfigured("cubepod")
	if err != nil {
		return fmt.Errorf("the cubepod global option is needed: %w", err)
	}
	p.app = app.(*App)
	return nil
}

// Validate refuses what cannot work.
func (p *Panel) Validate() error {
	if !strings.HasPrefix(p.Prefix, "/") || strings.HasSuffix(p.Prefix, "/") || strings.ContainsAny(p.Prefix, "?#%{} ") {
		return fmt.Errorf("prefix %q: want a plain path such as /panel", p.Prefix)
	}
	if p.SharedOrigin != "" && p.SharedOrigin != "trusted" {
		return fmt.Errorf("shared_origin %q: want trusted, or leave it out", p.SharedOrigin)
	}
	if _, ok := parseHostPattern(p.PanelHost); p.PanelHost != "" && !ok {
		return badHostPattern(p.PanelHost)
	}
	for _, s := range p.GuestHost {
		if port, err := strconv.Atoi(s); s != "*" && (err != nil || port < 1 || port > 65535) {
			return fmt.Errorf("guest_host %q: want ports, or *", s)
		}
	}
	return nil
}

// ServeHTTP serves a panel. What is not below the prefix, to the letter, is
// nothing: Caddy's path matcher, which chose this handler, is more lenient. But
// on a sandbox's own host it is the page's that asks for it.
func (p *Panel) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	uri := originForm(r)
	path, ok := splitPanelPath(uri, p.Prefix)
	logURI := redact(uri)
	redirect := ""
	if ok {
		logURI = p.Prefix + "/" + redacted + redact(path.rest)
	}
	if p.PanelHost != "" {
		if ok {
			takePanelCookie(r)
		} else {
			path, redirect, ok = p.rootPath(r, uri)
		}
	}
	defer scrubTrace(r.Context(), r, logURI)
	entry := p.log.begin(r, logURI)
	rw := newResponseWriter(w, r, p.hygiene(r, path))
	rw.logURI = logURI
	defer func() { // also when reverse_proxy panics over a broken copy
		p.app.state.metrics.request(resultOf(rw.status))
		if entry != nil {
			entry.write(rw)
		}
	}()
	err := error(errNoPanel)
	if redirect != "" {
		rw.Header().Set("Location", redirect)
		rw.WriteHeader(http.StatusTemporaryRedirect)
		return nil
	}
	if ok {
		err = p.serve(rw, r, next, path)
	}
	if err == nil || rw.wrote() {
		if err != nil {
			p.logger.Debug("panel response broke off", zap.String("error", redact(err.Error())))
		}
		return nil
	}
	return p.fail(rw, r, err, logURI)
}

var errNoPanel = apierror.New(apierror.NotFound, "", "there is no panel at this address")

func (p *Panel) hygiene(r *http.Request, path panelPath) hygiene {
	return hygiene{
		rebaser:        rebaser{prefix: path.prefix, host: r.Host},
		trusted:        p.SharedOrigin == "trusted" || p.PanelHost != "",
		ownHost:        p.PanelHost != "",
		frameAncestors: strings.Join(p.FrameAncestors, " "),
	}
}

func (p *Panel) fail(w *responseWriter, r *http.Request, err error, uri string) error {
	e := errorOf(err)
	level := zap.DebugLevel
	if e.Status() >= 500 && e.Err != nil {
		level = zap.WarnLevel
	}
	if c := p.logger.Check(level, "panel request refused"); c != nil {
		c.Write(zap.Int("status", e.Status()), zap.String("code", e.WireCode()), zap.String("error", redact(err.Error())))
	}
	if err := answerByRoutes(w, r, e, uri); err != nil {
		p.logger.Error("error route failed", zap.String("error", redact(err.Error())))
	}
	if !w.wrote() {
		answerError(w, r, e)
	}
	return nil
}

func (p *Panel) serve(w *responseWriter, r *http.Request, next caddyhttp.Handler, path panelPath) error {
	keys := p.app.keys.verifier()
	claims, err := p.verify(r, keys, path.token)
	if err != nil {
		return err
	}
	if p.PanelHost != "" {
		if id, ok := p.hosts.sandbox(r.Host); !ok || string(id) != claims.Sandbox {
			return errHost
		}
		if path.prefix != "" && clientOf(r).navigation {
			w.keep = path.token
		}
	}
	if err := allowView(claims, r, w, path.rest); err != nil {
		return err
	}
	if !w.trusted && isPreflight(r) {
		answerPreflight(w, r)
		return nil
	}
	if location, missing := path.slash(); missing && (r.Method == http.MethodGet || r.Method == http.MethodHead) && !w.upgrade {
		w.Header().Set("Location", location)
		w.WriteHeader(http.StatusPermanentRedirect)
		return nil
	}
	rec, err := p.running(r, claims, path.token)
	if err != nil {
		return err
	}
	target, err := newTarget(claims, rec, p.app.keys.tunnelKeys())
	if err != nil {
		return err
	}
	visit, ctx, err := p.app.state.visits.begin(r.Context(), path.token, claims, rec, clientKey(r), p.app.limits)
	if err != nil {
		return err
	}
	defer visit.done()
	// Keys that were read again in between ended only what had begun.
	if now := p.app.keys.verifier(); now != keys && !signedBy(now, path.token) {
		return endKey.err
	}
	w.visit = visit
	p.follow(w, r, claims, path.rest)
	w.target = target
	asks := clientOf(r) // before the guest's view of r hides it
	if err := p.pass(ctx, w, r, next, path); err != nil {
		if e := visit.why(); e != nil {
			return e.err
		}
		if !asks.browser && rec.DesktopWanted && isDesktopPort(claims.Port) && errorOf(err).WireCode() == "port_closed" {
			return p.startDesktop(r, rec.ID, claims.Port, path.token)
		}
		return err
	}
	if !w.wrote() && r.Context().Err() == nil {
		// So reverse_proxy leaves a guest's 101 that it cannot make use of.
		return errSenseless
	}
	return nil
}

// startDesktop brings a wanted desktop back that does not listen: its sandbox
// was resumed a moment ago, or a part of it died. Who asked comes again soon.
func (p *Panel) startDesktop(r *http.Request, id session.ID, port int, token string) error {
	ctx, cancel := context.WithTimeout(r.Context(), pageWait)
	defer cancel()
	if _, err := p.app.state.waker.wake(ctx, wakeKey{id, port}, token); err != nil {
		return waiting(ctx, err)
	}
	return errWaking
}

// follow lets the visit see what the client does, and what it may not do.
//
// A person's navigation is activity, and so is each request of a program; a
// page's own requests are only when they bring something, as a forgotten page
// may go on asking for ever. On a WebSocket data counts, and on those of the
// desktop only keys, the pointer and the clipboard.
func (p *Panel) follow(w *responseWriter, r *http.Request, c paneltoken.Claims, rest string) {
	use := w.visit.use
	if w.upgrade {
		j := judgeOf(c.Port, rest, c.Mode == paneltoken.View)
		if _, unknown := j.(anyData); !unknown {
			r.Header.Del("Sec-WebSocket-Extensions") // compressed, nobody could follow it
		}
		w.client = &clientFrames{judge: j, input: use.note, refuse: w.visit.refuse, filter: c.Mode == paneltoken.View}
		if w.extended {
			r.Body = w.client.body(r.Body)
		}
		return
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		if !clientOf(r).browser {
			use.note()
		}
	default:
		use.note()
	}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &notedBody{r.Body, use}
	}
}

// notedBody is a request's body: each part of a long upload is activity.
type notedBody struct {
	io.ReadCloser
	use *use
}

// Read reads and notes.
func (b *notedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.use.note()
	}
	return n, err
}

// verify checks the token with keys.
func (p *Panel) verify(r *http.Request, keys *paneltoken.Verifier, token string) (paneltoken.Claims, error) {
	claims, err := keys.Verify(token)
	switch {
	case errors.Is(err, paneltoken.ErrExpired):
		return claims, endExpired.err
	case err != nil && p.app.state.failing.add(clientKey(r), p.app.limits.failures):
		return claims, errFailures
	case err != nil:
		return claims, apierror.Wrap(err, apierror.Forbidden, "token_invalid", "this panel link is not valid")
	}
	return claims, nil
}

// running gives the record of the sandbox once it runs; it waits for one that
// is on the way, or paused, where the client may wake it.
func (p *Panel) running(r *http.Request, claims paneltoken.Claims, token string) (*session.Record, error) {
	id, ok := session.ParseID(claims.Sandbox)
	if !ok {
		return nil, errNoSandbox
	}
	rec, err := p.app.state.records.get(r.Context(), id)
	if err != nil {
		return nil, err
	}
	if claims.Gen > 0 && claims.Gen < rec.Gen {
		return nil, endRevoked.err
	}
	if rec.State == session.Running {
		return rec, nil
	}
	if rec.State == session.Deleted || rec.State == session.Deleting || rec.State == session.Failed {
		return nil, stateError(rec)
	}
	if _, ok := rec.Ports[claims.Port]; !ok {
		return nil, apierror.New(apierror.NotFound, "port_not_found", "port %d is not registered", claims.Port)
	}
	c := clientOf(r)
	if c.browser {
		return nil, stateError(rec)
	}
	wait := time.Duration(p.WakeWait)
	if c.navigation || wantsPage(r) {
		wait = pageWait
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	if rec, err = p.app.awaitRunning(ctx, rec, claims.Port, token); err != nil {
		return nil, err
	}
	if claims.Gen > 0 && claims.Gen < rec.Gen {
		return nil, endRevoked.err
	}
	return rec, nil
}

// pass rewrites the request to what the guest sees and hands it on.
func (p *Panel) pass(ctx context.Context, w *responseWriter, r *http.Request, next caddyhttp.Handler, path panelPath) error {
	t := w.target
	if err := retarget(r, path.rest); err != nil {
		return apierror.Wrap(err, apierror.Invalid, "invalid_path", "the path is not valid")
	}
	dropForwarded(r.Header)
	if v := r.Header.Get("Referer"); v != "" {
		if v = w.referer(v); v == "" {
			r.Header.Del("Referer")
		} else {
			r.Header.Set("Referer", v)
		}
	}
	// Caddy cuts a body that is quiet for a minute, and over HTTP/2 and HTTP/3
	// a WebSocket is a body.
	if reader, _ := caddyhttp.IdleTimeoutsFromContext(r.Context()); reader != nil {
		defer reader.Override(quiet, 0)()
	}
	h := &handover{
		app: p.app, target: t, request: r, logURI: w.logURI, prefix: path.prefix, parsed: r.URL.Path, parsedRaw: r.URL.RawPath,
		guestHost: guarded(t) || !t.direct.IsValid() && (p.guestPorts[0] || p.guestPorts[t.port]),
	}
	h.path, _, _ = strings.Cut(r.RequestURI, "?")
	// Below, the request is logged: what the guest itself has in its query, say,
	// must not show a token.
	r.RequestURI = redact(r.RequestURI)
	h.hidden.request = hide(r.Header)
	w.hidden = &h.hidden
	return next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, handoverKey{}, h)))
}

// resultOf is the metric's label for a status.
func resultOf(status int) string {
	switch {
	case status == http.StatusForbidden:
		return "forbidden"
	case status == http.StatusNotFound, status == http.StatusGone:
		return "not_found"
	case status == http.StatusBadGateway, status == http.StatusGatewayTimeout:
		return "upstream_error"
	case status == http.StatusServiceUnavailable:
		return "unavailable"
	case status == 0, status == apierror.ClientGone.Status():
		return "client_gone"
	case status >= 500:
		return "server_error"
	case status >= 400:
		return "client_error"
	}
	return "ok"
}

// Interface guards.
var (
	_ caddy.Provisioner           = (*Panel)(nil)
	_ caddy.Validator             = (*Panel)(nil)
	_ caddyhttp.MiddlewareHandler = (*Panel)(nil)
)
