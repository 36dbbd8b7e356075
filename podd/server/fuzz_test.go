package server_test

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/podd/command"
	"github.com/cubeplexai/cubepod/podd/server"
)

// held is a podd that starts nothing, whatever it is told, and the id of a
// command that is finished.
func held(f *testing.F) (h http.Handler, m *command.Manager, id string) {
	f.Helper()
	quiet := log.New(io.Discard, "", 0)
	m, err := command.Open(command.Options{StateDir: f.TempDir(), Workdir: "/", Log: quiet})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { m.Close() })
	c, _, err := m.Run(poddapi.RunRequest{Command: "printf 'aé汉😀'"})
	if err != nil {
		f.Fatal(err)
	}
	<-c.Done()
	m.Hold()
	return server.New(m, server.Options{Workdir: "/", EnvFile: f.TempDir() + "/env", Log: quiet}).Handler(), m, c.ID()
}

// answered checks that an answer is one: a success, or an error that is the
// caller's and says what it is.
func answered(t *testing.T, w *httptest.ResponseRecorder, what string) {
	t.Helper()
	if w.Code == http.StatusOK || w.Code == http.StatusNoContent {
		return
	}
	var e struct {
		Code           int
		Error, Message string
	}
	if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Code != w.Code || e.Error == "" || e.Message == "" {
		t.Errorf("%s: got %d %s", what, w.Code, w.Body)
	}
	if w.Code >= 500 && e.Error != "stopping" {
		t.Errorf("%s: got %d %s", what, w.Code, w.Body)
	}
}

// FuzzBodies sends anything as the body of the calls that take JSON.
func FuzzBodies(f *testing.F) {
	h, m, id := held(f)
	for _, seed := range []string{
		`{"command":"true","workdir":"/","envs":{"A":"b"},"background":true,"uid":0,"gid":0}`,
		`{"command":"cat","user":"root","stdin":"x","stdin_open":true,"timeout_ms":1,"output_limit":5,"separate":true,"idempotency_key":"k"}`,
		`{"command":"x","pty":{"cols":80,"rows":24}}`, `{"signal":"SIGTERM"}`, `{"cols":1,"rows":1}`, `{"envs":{"A":"it's"}}`,
		`{"command":"\ud83d\ude00 \\ud83d \u0041"}`, `{"command":"\ud83d"}`, "{\"command\":\"\xff\"}", `[]`, `null`, ``, `{"command":1}`, `{"command":"a\u0000"}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		for _, call := range [][2]string{
			{"POST", "/v1/commands/run"}, {"POST", "/v1/commands/" + id + "/signal"}, {"POST", "/v1/commands/" + id + "/resize"}, {"PUT", "/v1/env"},
		} {
			r := httptest.NewRequest(call[0], call[1], nil)
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			answered(t, w, call[1]+" "+body)
		}
		if m.Started() != 1 {
			t.Fatalf("%q started something", body)
		}
	})
}

// FuzzQueries sends anything as the parameters of the calls that only read.
func FuzzQueries(f *testing.F) {
	h, _, id := held(f)
	for _, seed := range []string{
		"cursor=0", "cursor=-1", "cursor=99999999999999999999", "cursor=2&wait_ms=0", "format=raw&cursor=3", "follow=1", "format=raw&follow=1",
		"path=/etc/passwd", "path=%00", "path=%zz", "path=/a&path=/b", "path=relative/../..", "a;b", "wait_ms=1e9", "eof=2",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		for _, path := range []string{"/v1/commands/" + id + "/logs", "/v1/files/stat"} {
			r := httptest.NewRequest("GET", path, nil)
			r.URL = &url.URL{Path: path, RawQuery: query}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			answered(t, w, path+"?"+query)
		}
	})
}
