package sessionapi_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi"
)

func TestPassthrough(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{})
	id := a.create("")
	podd := w.rt.podd(t, id)

	for _, c := range []struct{ method, path, body, uri string }{
		{"GET", "/commands", "", "/v1/commands"},
		{"GET", "/commands/proc-1/status", "", "/v1/commands/proc-1/status"},
		{"GET", "/commands/a%2Fb%20c/status?x=%2F&y", "", "/v1/commands/a%2Fb%20c/status?x=%2F&y"},
		{"POST", "/commands/proc-1/kill", "", "/v1/commands/proc-1/kill"},
		{"POST", "/commands/proc-1/stdin?eof=1", "raw", "/v1/commands/proc-1/stdin?eof=1"},
		{"POST", "/commands/proc-1/resize", "{}", "/v1/commands/proc-1/resize"},
		{"POST", "/commands/proc-1/signal", "{}", "/v1/commands/proc-1/signal"},
		{"DELETE", "/files?path=/a&recursive=1", "", "/v1/files?path=/a&recursive=1"},
		{"GET", "/files/list?path=/a;b", "", "/v1/files/list?path=/a;b"},
		{"GET", "/files/stat?path=/a", "", "/v1/files/stat?path=/a"},
		{"POST", "/files/mkdir", "{}", "/v1/files/mkdir"},
		{"POST", "/files/move", "{}", "/v1/files/move"},
		{"GET", "/archive?path=/a", "", "/v1/archive?path=/a"},
		{"PUT", "/archive?path=/a", "tar", "/v1/archive?path=/a"},
	} {
		got := a.want(200, c.method, box(id, c.path), c.body).json(t)
		if got["uri"] != c.uri || got["method"] != c.method || got["host"] != "podd" {
			t.Errorf("%s %s: podd got %v", c.method, c.path, got)
		}
	}
	// podd's own errors come through.
	a.refused(404, "file_not_found", "GET", box(id, "/files?path=/nope"), "")
	// Its tunnel, lifecycle and metrics do not, nor does the way up.
	for _, c := range []string{
		"GET /ports/8080/tunnel", "POST /lifecycle/prepare-stop", "POST /lifecycle/resume", "GET /metrics",
		"GET /commands/%2e%2e/lifecycle/prepare-stop", "GET /files/../lifecycle/resume", "GET /v1/commands",
	} {
		method, path, _ := strings.Cut(c, " ")
		if got := a.call(method, box(id, path), ""); got.status != 404 && got.status != 405 {
			t.Errorf("%s: got %s", c, got)
		}
	}
	if n := w.rt.prepares.Load(); n != 0 {
		t.Error("a caller reached podd's lifecycle")
	}

	// What says who asked stays here.
	req, _ := http.NewRequestWithContext(t.Context(), "GET", a.url+box(id, "/commands"), nil)
	for k, v := range map[string]string{
		"Authorization": "Bearer " + aliceKey, "X-API-Key": aliceKey, "Origin": "https://evil.example", "Cookie": "a=b",
		"Referer": "https://x/", "X-Forwarded-For": "1.2.3.4", "Sec-Fetch-Site": "cross-site", "X-Request-ID": "req-7",
		"Connection": "Upgrade", "Upgrade": "tcp", "X-Kept": "yes",
	} {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("X-Request-ID") != "req-7" {
		t.Errorf("got %d %v", resp.StatusCode, resp.Header)
	}
	podd.mu.Lock()
	last := podd.last
	podd.mu.Unlock()
	for _, k := range []string{"X-Api-Key", "Origin", "Cookie", "Referer", "X-Forwarded-For", "Sec-Fetch-Site", "Upgrade"} {
		if v := last.Get(k); v != "" {
			t.Errorf("podd got %s: %s", k, v)
		}
	}
	if last.Get("Authorization") != "Bearer "+podd.token || last.Get("X-Kept") != "yes" || last.Get("X-Request-Id") != "req-7" {
		t.Errorf("podd got %v", last)
	}
	for k, want := range map[string]string{
		"Access-Control-Allow-Origin": "", "Set-Cookie": "",
		"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'; sandbox",
	} {
		if got := resp.Header.Get(k); got != want {
			t.Errorf("%s: got %q, want %q", k, got, want)
		}
	}
}

func TestUploadStreams(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{})
	id := a.create("")
	pr, pw := io.Pipe()
	go func() {
		for range 64 {
			pw.Write(make([]byte, 64<<10))
		}
		pw.Close()
	}()
	req, _ := http.NewRequestWithContext(t.Context(), "PUT", a.url+box(id, "/files?path=/big"), pr)
	req.Header.Set("X-API-Key", aliceKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 200 || !strings.Contains(string(body), `"size":4194304`) {
		t.Errorf("got %d %s", resp.StatusCode, body)
	}
}

func TestFollowStreams(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{})
	id := a.create("")
	podd := w.rt.podd(t, id)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "GET", a.url+box(id, "/commands/proc-1/logs?follow=1"), nil)
	req.Header.Set("X-API-Key", aliceKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil || line != "event: output\n" {
		t.Fatalf("got %q, %v before the end of the stream", line, err)
	}
	cancel()
	<-podd.left // or the test ends by its own timeout
}

// TestEndStreams is a server's way down: what follows a sandbox ends, what
// changes one does not.
func TestEndStreams(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{})
	id := a.create("")
	release := w.rt.hold()
	defer release()
	created, ran, followed := make(chan answer, 1), make(chan answer, 1), make(chan error, 1)
	call := func(to chan answer, path, body string) {
		ans, _ := a.try(t.Context(), "POST", path, body)
		to <- ans
	}
	go call(created, "/sandboxes", `{"templateID":"base"}`)
	go call(ran, box(id, "/commands/run"), `{"command":"exec sleep 60"}`)
	go func() {
		_, err := a.try(t.Context(), "GET", box(id, "/commands/proc-1/logs?follow=1"), "")
		followed <- err
	}()
	testutil.Eventually(t, "all are at work", func() bool {
		podd := w.rt.podd(t, id)
		podd.mu.Lock()
		defer podd.mu.Unlock()
		return w.rt.waiting.Load() == 1 && len(podd.runs) == 1 && podd.following
	})
	a.service.EndStreams()
	if got := <-ran; got.status != 503 || got.code() != "shutting_down" {
		t.Errorf("a command's call: got %s", got)
	}
	if err := <-followed; err == nil {
		t.Error("half a stream looks whole")
	}
	release()
	if got := <-created; got.status != 201 {
		t.Errorf("the create: got %s", got)
	}
	if got := a.state(id); got != "running" {
		t.Errorf("the sandbox is %s", got)
	}
}

func TestPoddRefusesOurToken(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{})
	id := a.create("")
	w.rt.podd(t, id).token = "another"
	// The caller's key is good: 401 would say it is not.
	a.refused(502, "podd_unreachable", "GET", box(id, "/commands"), "")
}

func TestEnvironmentOfBadRun(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{})
	id := a.create(`,"envVars":{"A":"1"}`)
	for _, body := range []string{`{`, `[]`, `{"command":1}`, `{"command":"true","envs":{"A":1}}`, `{"command":"true","envs":{"A":null}}`} {
		if got := a.call("POST", box(id, "/commands/run"), body); got.status == 200 {
			t.Errorf("%s: got %s", body, got)
		}
	}
	big := `{"command":"` + strings.Repeat("x", 9<<20) + `"}`
	a.refused(413, "too_large", "POST", box(id, "/commands/run"), big)
	if got := a.want(200, "POST", box(id, "/commands/run"), `{"command":"echo $A","envs":null}`).json(t); got["output"] != "1\n" {
		t.Errorf("got %v", got)
	}
}

func TestStoreDown(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{})
	id := a.create("")
	w.redis.Stop(t)
	for _, c := range []string{"GET " + box(id), "POST " + box(id, "/pause"), "GET /sandboxes", "POST " + box(id, "/commands/run"), "GET /ready"} {
		method, path, _ := strings.Cut(c, " ")
		got := a.call(method, path, "")
		if got.status != 503 || got.code() != "store_unavailable" || got.header.Get("Retry-After") == "" {
			t.Errorf("%s: got %s", c, got)
		}
	}
	a.want(200, "GET", "/health", "")
	w.redis.Start(t)
	testutil.Eventually(t, "the store is back", func() bool { return a.call("GET", box(id), "").status == 200 })
	a.want(200, "POST", box(id, "/commands/run"), `{"command":"true"}`)
}
