package loopback_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/cubeplexai/cubepod/internal/loopback"
)

func TestGuard(t *testing.T) {
	h := loopback.Guard(8080, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	tests := []struct {
		name, host, origin, site string
		want                     int
	}{
		{"tool", "127.0.0.1:8080", "", "", 200},
		{"tool by name", "localhost:8080", "", "", 200},
		{"tool over v6", "[::1]:8080", "", "", 200},
		{"any loopback address", "127.9.9.9", "", "", 200},
		{"edge", "127.0.0.1:8080", "http://127.0.0.1:8080", "", 200},
		{"own page", "127.0.0.1:8080", "http://127.0.0.1:8080", "same-origin", 200},
		{"typed address", "127.0.0.1:8080", "", "none", 200},
		{"foreign page", "127.0.0.1:8080", "https://evil.example", "cross-site", 403},
		{"opaque page", "127.0.0.1:8080", "null", "cross-site", 403},
		{"page on another port", "127.0.0.1:8080", "http://127.0.0.1:3000", "same-site", 403},
		{"own port by name", "127.0.0.1:8080", "http://localhost:8080", "", 403},
		{"image in a foreign page", "127.0.0.1:8080", "", "cross-site", 403},
		{"image in a page on another port", "127.0.0.1:8080", "", "same-site", 403},
		{"name that resolves to loopback", "rebind.evil.example:8080", "", "", 403},
		{"name that looks like it", "127.0.0.1.evil.example", "", "", 403},
		{"no host", "", "", "", 403},
		{"public address", "8.8.8.8:8080", "", "", 403},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/", nil)
			r.Host = tt.host
			if tt.origin != "" {
				r.Header.Set("Origin", tt.origin)
			}
			if tt.site != "" {
				r.Header.Set("Sec-Fetch-Site", tt.site)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != tt.want {
				t.Errorf("got %d, want %d", w.Code, tt.want)
			}
		})
	}
}

func TestGuardReadsEveryOrigin(t *testing.T) {
	h := loopback.Guard(8080, http.NotFoundHandler())
	r := httptest.NewRequest("GET", "http://127.0.0.1:8080/", nil)
	r.Header["Origin"] = []string{"http://127.0.0.1:8080", "https://evil.example"}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 403 {
		t.Errorf("got %d, want 403", w.Code)
	}
}
