package caddymodule_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

// spans is an OTLP collector that keeps what it gets.
type spans struct {
	mu    sync.Mutex // guards the fields below
	names []string
	paths []string // url.path of each span
	raw   []byte
}

func (s *spans) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var export collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &export)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.raw = append(s.raw, body...)
	for _, resource := range export.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				s.names = append(s.names, span.Name)
				for _, a := range span.Attributes {
					if a.Key == "url.path" {
						s.paths = append(s.paths, a.Value.GetStringValue())
					}
				}
			}
		}
	}
}

// TestNoTokenInTraces traces panel requests in front of the panel and behind
// it, with attributes of all that a request has, and reads what a collector got.
func TestNoTokenInTraces(t *testing.T) {
	const attributes = `span_attributes {
		uri {http.request.uri}
		original {http.request.orig_uri}
		part {http.request.orig_uri.path.1}
		query {http.request.orig_uri.query}
		from {http.request.header.Referer}
	}`
	for name, tt := range map[string]struct {
		options edgeOptions
		path    string // that a span of a good request has
	}{
		"in front": {edgeOptions{extra: "tracing {\nspan \"{http.request.method} {http.request.uri}\"\n" + attributes + "\n}"}, "/panel/REDACTED/page"},
		"behind":   {edgeOptions{site: "tracing {\n" + attributes + "\n}"}, "/page"},
	} {
		t.Run(name, func(t *testing.T) {
			var got spans
			srv := httptest.NewServer(&got)
			defer srv.Close()
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", srv.URL)
			t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
			e := startEdge(t, http.HandlerFunc(echo), tt.options)
			token := e.token(e.claims(3000))
			panel := e.url + "/panel/" + token
			if resp, _ := e.get(panel+"/page?back="+panel, "Referer", panel+"/"); resp.Header.Get("X-Uri") != "/page?back="+panel {
				t.Errorf("the guest got %q", resp.Header.Get("X-Uri"))
			}
			e.get(panel + "/panel/" + token + "/nested")
			e.get(panel[:len(panel)-3] + "AAA/forged")
			e.get(e.url + "/PANEL/" + token + "/spelled")
			e.get(panel)
			e.get(e.url + "/panel/" + e.token(e.claims(3001)) + "/no-port")
			e.get(panel + "/last")
			testutil.Eventually(t, "the last request's span is there", func() bool {
				got.mu.Lock()
				defer got.mu.Unlock()
				return bytes.Contains(got.raw, []byte("/last"))
			})
			got.mu.Lock()
			defer got.mu.Unlock()
			if bytes.Contains(got.raw, []byte(token[20:60])) {
				t.Errorf("a token is in the spans %q with the paths %q", got.names, got.paths)
			}
			if !bytes.Contains([]byte(fmt.Sprint(got.paths)), []byte(tt.path)) {
				t.Errorf("no span has the path %s: got %q", tt.path, got.paths)
			}
			log, err := os.ReadFile(e.logfile)
			if err != nil {
				t.Fatal(err)
			}
			for line := range bytes.Lines(log) {
				if bytes.Contains(line, []byte("handled request")) && bytes.Contains(line, []byte("REDACTED/page")) &&
					!(bytes.Contains(line, []byte(`"traceID":"`)) && bytes.Contains(line, []byte(`"sandbox":"`+string(e.rec.ID)+`","port":3000`))) {
					t.Errorf("the access log does not tell the trace and the sandbox: %s", line)
				}
			}
		})
	}
}
