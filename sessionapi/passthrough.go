package sessionapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/internal/session"
)

// poddCalls are podd's calls that are handed on, by their path below /v1. The
// rest of podd's, its tunnel and its lifecycle, is not for callers.
var poddCalls = []string{
	"POST /commands/run",
	"GET /commands",
	"GET /commands/{id}/status",
	"GET /commands/{id}/logs",
	"POST /commands/{id}/kill",
	"POST /commands/{id}/stdin",
	"POST /commands/{id}/resize",
	"POST /commands/{id}/signal",
	"GET /files",
	"PUT /files",
	"DELETE /files",
	"GET /files/list",
	"GET /files/stat",
	"POST /files/mkdir",
	"POST /files/move",
	"GET /archive",
	"PUT /archive",
	"PUT /env",
}

// podd hands a call on to the sandbox's podd. Bodies are streamed both ways,
// and a client that leaves ends the call there too.
func (a *api) podd(w http.ResponseWriter, r *http.Request, rec *session.Record) error {
	rec, err := a.running(r.Context(), rec)
	if err != nil {
		return err
	}
	token, err := a.token(rec, poddapi.Full)
	if err != nil {
		return err
	}
	if strings.HasSuffix(r.Pattern, "/commands/run") && len(rec.Envs) > 0 {
		if err := addEnvs(w, r, rec.Envs); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(a.streams, func() { cancel(errClosed) })()
	var failure error
	proxy := &httputil.ReverseProxy{
		Transport:      a.podds.via(rec),
		FlushInterval:  -1,
		Rewrite:        func(pr *httputil.ProxyRequest) { toPodd(pr, token) },
		ModifyResponse: fromPodd,
		ErrorHandler:   func(_ http.ResponseWriter, _ *http.Request, err error) { failure = poddapi.Unreachable(err) },
		BufferPool:     &a.buffers,
		ErrorLog:       a.proxyLog,
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
	if failure != nil && a.streams.Err() != nil {
		return errClosed
	}
	if failure == nil {
		return nil
	}
	return a.interrupted(ctx, rec, failure)
}

// toPodd turns a caller's request into one for podd: the path below the
// sandbox, the sandbox's token, and nothing that says who asked.
func toPodd(pr *httputil.ProxyRequest, token string) {
	in, out := pr.In, pr.Out
	_, rest, _ := strings.Cut(strings.TrimPrefix(in.URL.EscapedPath(), "/sandboxes/"), "/")
	out.URL.RawPath = "/v1/" + rest
	// What was parsed once parses again.
	out.URL.Path, _ = url.PathUnescape(out.URL.RawPath)
	out.URL.RawQuery = in.URL.RawQuery // podd judges it, as it came
	for _, name := range []string{
		"X-Api-Key", "Cookie", "Origin", "Referer", "Upgrade", "Connection",
		"Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest", "Sec-Fetch-User",
	} {
		out.Header.Del(name)
	}
	out.Header.Set("Authorization", "Bearer "+token)
	out.Header.Set("X-Request-Id", noteOf(in.Context()).id)
}

// fromPodd judges podd's answer. What a sandbox says is shown on the console's
// origin, so no browser may take it for a page of that origin.
func fromPodd(resp *http.Response) error {
	if resp.StatusCode == http.StatusUnauthorized {
		// Our token, not the caller's key: the caller can do nothing.
		return errors.New("podd does not take the token of its record")
	}
	if resp.StatusCode == http.StatusServiceUnavailable { // it stops; the sandbox's record says why
		return apierror.Read(resp)
	}
	h := resp.Header
	for name := range h {
		if name == "Set-Cookie" || strings.HasPrefix(name, "Access-Control-") {
			delete(h, name)
		}
	}
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	return nil
}

// addEnvs puts the sandbox's variables under those of a run call. A body that
// is no JSON object passes as it is, for podd to refuse.
func addEnvs(w http.ResponseWriter, r *http.Request, envs map[string]string) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, poddapi.MaxJSON))
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return apierror.New(apierror.TooLarge, "", "a command has at most %d bytes", tooLarge.Limit)
	}
	if err != nil {
		return apierror.Wrap(err, apierror.Invalid, "invalid_body", "the body did not arrive")
	}
	var run map[string]json.RawMessage
	var own map[string]*string // a null is for podd to refuse, too
	if json.Unmarshal(body, &run) == nil && run != nil && (run["envs"] == nil || json.Unmarshal(run["envs"], &own) == nil) {
		merged := make(map[string]*string, len(envs)+len(own))
		for name, value := range envs {
			merged[name] = &value
		}
		maps.Copy(merged, own)
		// Strings and what was just parsed can be written.
		run["envs"], _ = json.Marshal(merged)
		body, _ = json.Marshal(run)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	return nil
}

// bufferPool lends the buffers of copies.
type bufferPool struct{ pool sync.Pool }

// Get implements httputil.BufferPool.
func (b *bufferPool) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, 32<<10)
}

// Put implements httputil.BufferPool.
func (b *bufferPool) Put(p []byte) { b.pool.Put(&p) }
