package chrome

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/coder/websocket"
)

// DevTools is a browser's DevTools port, such as "127.0.0.1:9223".
type DevTools string

// Target is something DevTools can attach to.
type Target struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	URL  string `json:"url"`
}

// client knows no proxy, since the browser is on this machine, and keeps no
// connection: the next one may lead to another browser.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 8 << 20

// Pages lists the tabs there are. The browser's main thread answers, so a
// browser that hangs does not.
func (d DevTools) Pages(ctx context.Context) ([]Target, error) {
	var targets []Target
	if err := d.get(ctx, http.MethodGet, "/json/list", &targets); err != nil {
		return nil, err
	}
	pages := targets[:0]
	for _, t := range targets {
		if t.Type == "page" {
			pages = append(pages, t)
		}
	}
	return pages, nil
}

// Open opens a tab.
func (d DevTools) Open(ctx context.Context, page string) error {
	// To Chromium "+" is no space, and "&" is the address's end.
	address := strings.ReplaceAll(url.QueryEscape(page), "+", "%20")
	return d.get(ctx, http.MethodPut, "/json/new?"+address, nil)
}

// Activate brings a tab to the front.
func (d DevTools) Activate(ctx context.Context, id string) error {
	return d.get(ctx, http.MethodGet, "/json/activate/"+url.PathEscape(id), nil)
}

// Close asks the browser to close as a person would: windows first, everything
// written to disk. It returns when the browser has taken note, not when it is
// gone.
func (d DevTools) Close(ctx context.Context) error {
	address, err := d.browser(ctx)
	if err != nil {
		return err
	}
	conn, _, err := websocket.Dial(ctx, address.String(), &websocket.DialOptions{HTTPClient: client})
	if err != nil {
		return fmt.Errorf("devtools: %w", err)
	}
	defer conn.CloseNow()
	if err := conn.Write(ctx, websocket.MessageText, []byte(`{"id":1,"method":"Browser.close"}`)); err != nil {
		return fmt.Errorf("devtools: %w", err)
	}
	// The answer, or the end of a browser that was quicker.
	_, _, err = conn.Read(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("devtools: %w", err)
	}
	return nil
}

// Browser names the run of the browser that the port leads to: no two have the
// same name.
func (d DevTools) Browser(ctx context.Context) (string, error) {
	address, err := d.browser(ctx)
	if err != nil {
		return "", err
	}
	return address.Path, nil
}

// browser is where the browser itself, rather than a page, takes commands.
func (d DevTools) browser(ctx context.Context) (*url.URL, error) {
	var version struct {
		URL string `json:"webSocketDebuggerUrl"`
	}
	if err := d.get(ctx, http.MethodGet, "/json/version", &version); err != nil {
		return nil, err
	}
	address, err := url.Parse(version.URL)
	if err != nil {
		return nil, fmt.Errorf("devtools: %w", err)
	}
	return address, nil
}

func (d DevTools) get(ctx context.Context, method, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+string(d)+path, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("devtools: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("devtools: %w", err)
	}
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return fmt.Errorf("devtools: %w: %s", ErrNoTarget, strings.TrimSpace(string(body)))
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("devtools: %s %s: %s", method, path, resp.Status)
	case into == nil:
		return nil
	}
	return json.Unmarshal(body, into)
}

// ErrNoTarget reports that there is no tab of that id.
var ErrNoTarget = errors.New("no such target")

// SamePage reports whether a tab at one address shows what was asked for by
// the other. A root without its slash is the same page, and a space is written
// as the browser writes it.
func SamePage(a, b string) bool { return canonical(a) == canonical(b) }

func canonical(address string) string {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		u.Host = strings.TrimSuffix(strings.ToLower(u.Host), map[string]string{"http": ":80", "https": ":443"}[u.Scheme])
		address = new(url.URL).ResolveReference(u).String() // without dots
	}
	return strings.ReplaceAll(strings.TrimSuffix(address, "/"), " ", "%20")
}
