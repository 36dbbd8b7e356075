package cdpfront

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// maxDiscovery bounds an answer that is rewritten; a target takes some 600
// bytes plus its title and address.
const maxDiscovery = 16 << 20

// isDiscovery says whether the answer to path names debugger addresses.
// Clients ask with and without a slash at the end.
func isDiscovery(path string) bool {
	switch strings.TrimSuffix(path, "/") {
	case "/json", "/json/list", "/json/version", "/json/new":
		return true
	}
	return false
}

// rewriteDiscovery makes the debugger addresses in resp those of the client
// that asked. An answer of another shape passes as it is.
func rewriteDiscovery(resp *http.Response) error {
	client, ok := clientAddress(resp.Request.Context())
	if !ok || resp.StatusCode != http.StatusOK {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDiscovery+1))
	resp.Body.Close()
	if err != nil {
		return fmt.Errorf("read the browser's targets: %w", err)
	}
	if len(body) > maxDiscovery {
		return fmt.Errorf("read the browser's targets: more than %d bytes", maxDiscovery)
	}
	body = client.rewriteBody(body)
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.TransferEncoding = nil
	if resp.Request.Method != http.MethodHead {
		resp.ContentLength = int64(len(body))
		resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
	}
	return nil
}

// address is where a client reaches the front.
type address struct {
	secure bool
	host   string // with its port, if it has one
	prefix string // "" or "/panel/…", without a slash at the end
}

// addressOf finds the address that r was sent to, as the proxies on the way
// tell it. Whoever lies here is lied to alone.
func addressOf(r *http.Request) address {
	a := address{secure: r.TLS != nil, host: r.Host}
	switch firstForwarded(r, "Proto") {
	case "https", "wss":
		a.secure = true
	case "http", "ws":
		a.secure = false
	}
	if host := firstForwarded(r, "Host"); host != "" {
		a.host = host
	}
	if prefix := firstForwarded(r, "Prefix"); strings.HasPrefix(prefix, "/") {
		a.prefix = strings.TrimRight(prefix, "/")
	}
	return a
}

// firstForwarded gives the value that the outermost proxy set.
func firstForwarded(r *http.Request, name string) string {
	v, _, _ := strings.Cut(r.Header.Get("X-Forwarded-"+name), ",")
	return strings.TrimSpace(v)
}

type addressKey struct{}

func withClientAddress(r *http.Request, a address) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), addressKey{}, a))
}

func clientAddress(ctx context.Context) (address, bool) {
	a, ok := ctx.Value(addressKey{}).(address)
	return a, ok
}

// rewriteBody rewrites a target, a list of targets or the version document.
// Chromium writes the keys in alphabetical order, and so does this.
func (a address) rewriteBody(body []byte) []byte {
	var one map[string]any
	var list []map[string]any
	var doc any
	switch {
	case decode(body, &list) == nil:
		for _, target := range list {
			a.rewriteTarget(target)
		}
		doc = list
	case decode(body, &one) == nil:
		a.rewriteTarget(one)
		doc = one
	default:
		return body
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "   ")
	if err := enc.Encode(doc); err != nil {
		return body
	}
	return out.Bytes()
}

// decode reads numbers as they are written, so that they leave unchanged.
func decode(body []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	return dec.Decode(v)
}

func (a address) rewriteTarget(t map[string]any) {
	if s, ok := t["webSocketDebuggerUrl"].(string); ok {
		t["webSocketDebuggerUrl"] = a.debuggerURL(s)
	}
	if s, ok := t["devtoolsFrontendUrl"].(string); ok {
		t["devtoolsFrontendUrl"] = a.frontendURL(s)
	}
}

// debuggerURL moves a WebSocket's URL to where the client can dial it.
func (a address) debuggerURL(s string) string {
	_, rest, ok := strings.Cut(s, "://")
	if !ok {
		return s
	}
	return a.scheme() + "://" + a.at(rest)
}

// frontendURL rewrites the page that shows a target. It takes the WebSocket as
// a parameter whose name is the scheme: ?ws=host/path or ?wss=host/path.
func (a address) frontendURL(s string) string {
	page, query, found := strings.Cut(s, "?")
	if strings.HasPrefix(page, "/") { // Chromium's own copy, at this port
		page = a.prefix + page
	}
	if !found {
		return page
	}
	params := strings.Split(query, "&")
	for i, p := range params {
		name, value, _ := strings.Cut(p, "=")
		if name != "ws" && name != "wss" {
			continue
		}
		if v, err := url.QueryUnescape(value); err == nil {
			value = v
		}
		params[i] = a.scheme() + "=" + a.at(value)
	}
	return page + "?" + strings.Join(params, "&")
}

// at puts the client's host and prefix in place of the host of hostAndPath.
func (a address) at(hostAndPath string) string {
	_, path, _ := strings.Cut(hostAndPath, "/")
	return a.host + a.prefix + "/" + path
}

func (a address) scheme() string {
	if a.secure {
		return "wss"
	}
	return "ws"
}
