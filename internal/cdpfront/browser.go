package cdpfront

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// wantsBrowser says whether r asks for a WebSocket to the browser without
// naming one. Clients that keep an address for long, such as Puppeteer's
// browserWSEndpoint, cannot know the id that every start of the browser makes
// anew.
func wantsBrowser(r *http.Request) bool {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return false
	}
	switch strings.TrimSuffix(r.URL.Path, "/") {
	case "", "/devtools/browser":
		return true
	}
	return false
}

// browserPath asks the browser that runs now for the path of its own target.
// It wakes a browser as any other request does.
func (f *Front) browserPath(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.upstream+"/json/version", nil)
	if err != nil {
		return "", err
	}
	resp, err := f.transport.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDiscovery))
	if err != nil {
		return "", fmt.Errorf("read the browser's version: %w", err)
	}
	var version struct {
		URL string `json:"webSocketDebuggerUrl"`
	}
	if err := json.Unmarshal(body, &version); err != nil {
		return "", fmt.Errorf("read the browser's version: %s: %w", resp.Status, err)
	}
	u, err := url.Parse(version.URL)
	if err != nil || u.Path == "" {
		return "", fmt.Errorf("the browser names no target of its own: %q", version.URL)
	}
	return u.Path, nil
}
