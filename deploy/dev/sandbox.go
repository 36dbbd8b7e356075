package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/cubeplexai/cubepod/internal/apierror"
)

// dayInSeconds is the longest life a sandbox can ask for.
const dayInSeconds = 86400

// apiClient calls the session API.
type apiClient struct{ url, key string }

func (a *apiClient) call(ctx context.Context, method, path string, in, out any) error {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, a.url+path, &body)
	if err != nil {
		return err
	}
	req.Header.Set("X-API-Key", a.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := direct.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %w", method, path, apierror.Read(resp))
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

type sandbox struct {
	SandboxID string `json:"sandboxID"`
	State     string `json:"state"`
	Runtime   string `json:"runtime"`
}

// firstSandbox has a sandbox with a running desktop and fills f with its URLs.
// The one that an earlier run left paused is resumed, with its files and
// logins, unless it is another runtime's; otherwise a new one is made.
func (a *apiClient) firstSandbox(ctx context.Context, runtime string, f *facts) error {
	var known []sandbox
	if err := a.call(ctx, http.MethodGet, "/v2/sandboxes?state=running,paused&metadata=made-by%3Dmake-run", nil, &known); err != nil {
		return err
	}
	ours := func(s sandbox) bool { return s.Runtime == runtime }
	if i := slices.IndexFunc(known, ours); i >= 0 {
		f.SandboxID = known[i].SandboxID
		err := a.call(ctx, http.MethodPost, "/sandboxes/"+f.SandboxID+"/connect", map[string]any{"timeout": dayInSeconds}, nil)
		if err != nil {
			return err
		}
	} else {
		var made sandbox
		err := a.call(ctx, http.MethodPost, "/sandboxes", map[string]any{
			"templateID": "desktop",
			"timeout":    dayInSeconds,
			"autoPause":  true,
			"metadata":   map[string]string{"made-by": "make-run"},
		}, &made)
		if err != nil {
			return err
		}
		f.SandboxID = made.SandboxID
	}
	var d struct {
		DesktopURL  string `json:"desktopUrl"`
		TerminalURL string `json:"terminalUrl"`
		CDPURL      string `json:"cdpUrl"`
	}
	err := a.call(ctx, http.MethodPost, "/sandboxes/"+f.SandboxID+"/desktop/start", map[string]any{"expiresInSeconds": dayInSeconds}, &d)
	if err != nil {
		return err
	}
	if d.DesktopURL == "" || d.TerminalURL == "" || d.CDPURL == "" {
		return errors.New("the API answered without panel URLs")
	}
	f.DesktopURL, f.TerminalURL, f.CDPURL = d.DesktopURL, d.TerminalURL, d.CDPURL
	return nil
}
