package console_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubeplexai/cubepod/sessionapi/console"
)

func get(t *testing.T, path string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	for n := 0; n < len(header); n += 2 {
		r.Header.Set(header[n], header[n+1])
	}
	w := httptest.NewRecorder()
	console.Handler().ServeHTTP(w, r)
	return w.Result()
}

func TestEachFileIsServedWithItsTypeAndThePolicy(t *testing.T) {
	for path, want := range map[string]string{
		"/":                   "text/html; charset=utf-8",
		"/console/":           "text/html; charset=utf-8",
		"/console/console.js": "text/javascript; charset=utf-8",
		"/console/style.css":  "text/css; charset=utf-8",
		"/console/icon.svg":   "image/svg+xml",
	} {
		resp := get(t, path)
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d", path, resp.StatusCode)
		}
		for name, want := range map[string]string{
			"Content-Type":           want,
			"X-Content-Type-Options": "nosniff",
			"Referrer-Policy":        "no-referrer",
			"Cache-Control":          "no-cache",
		} {
			if got := resp.Header.Get(name); got != want {
				t.Errorf("%s: %s = %q, want %q", path, name, got, want)
			}
		}
		policy := resp.Header.Get("Content-Security-Policy")
		for _, want := range []string{
			"default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'",
		} {
			if !strings.Contains(policy, want+";") {
				t.Errorf("%s: the policy lacks %q: %s", path, want, policy)
			}
		}
		if strings.Contains(policy, "unsafe") {
			t.Errorf("%s: the policy is not strict: %s", path, policy)
		}
	}
}

func TestAFileTheBrowserHasIsNotSentAgain(t *testing.T) {
	etag := get(t, "/console/console.js").Header.Get("ETag")
	if etag == "" {
		t.Fatal("no ETag")
	}
	resp := get(t, "/console/console.js", "If-None-Match", etag)
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusNotModified || len(body) != 0 {
		t.Errorf("status %d with %d bytes, want 304 without", resp.StatusCode, len(body))
	}
	if other := get(t, "/console/style.css").Header.Get("ETag"); other == etag {
		t.Error("two files share an ETag")
	}
}

func TestOtherPathsAreNotFound(t *testing.T) {
	for _, path := range []string{"/console/none.js", "/console/app.js", "/console/../console.go", "/favicon.ico", "/console"} {
		resp := get(t, path)
		if resp.StatusCode != http.StatusNotFound || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: status %d, %s", path, resp.StatusCode, resp.Header.Get("Content-Type"))
		}
	}
}

func TestOnlyReadingIsAllowed(t *testing.T) {
	w := httptest.NewRecorder()
	console.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") == "" {
		t.Errorf("status %d, Allow %q", w.Code, w.Header().Get("Allow"))
	}
}

// No module is left out of the script, and the page loads nothing but it, its
// style and its icon.
func TestThePageIsOneScript(t *testing.T) {
	entries, err := os.ReadDir("web")
	if err != nil {
		t.Fatal(err)
	}
	script, err := io.ReadAll(get(t, "/console/console.js").Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".js") && !strings.Contains(string(script), "\n// "+e.Name()+"\n") {
			t.Errorf("no module imports %s", e.Name())
		}
	}
	index, err := io.ReadAll(get(t, "/").Body)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range regexp.MustCompile(`(?:src|href)="(/console/[^"]+)"`).FindAllStringSubmatch(string(index), -1) {
		got = append(got, m[1])
	}
	want := []string{"/console/icon.svg", "/console/style.css", "/console/console.js"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the page loads (-want +got):\n%s", diff)
	}
}
