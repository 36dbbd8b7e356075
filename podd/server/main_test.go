package server_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cubeplexai/cubepod/podd/command"
	"github.com/cubeplexai/cubepod/podd/server"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const fullToken, tunnelToken = "full-token", "tunnel-token"

// podd is a server to call.
type podd struct {
	t        *testing.T
	http     *httptest.Server
	answered *atomic.Int64 // calls that are over
}

func start(t *testing.T, o server.Options) *podd {
	t.Helper()
	quiet := log.New(io.Discard, "", 0)
	m, err := command.Open(command.Options{StateDir: t.TempDir(), Workdir: "/", Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	o.Tokens, o.Workdir, o.Log = server.NewTokens(fullToken, tunnelToken), "/", quiet
	s := server.New(m, o)
	p := &podd{t: t, answered: new(atomic.Int64)}
	h := s.Handler()
	p.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer p.answered.Add(1)
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		s.Close(t.Context()) // the tunnels
		http.DefaultClient.CloseIdleConnections()
		p.http.Close()
	})
	return p
}

// do sends a call and gives the answer's status, header and body.
func (p *podd) do(method, path string, body any, header ...string) (int, http.Header, []byte) {
	p.t.Helper()
	var r io.Reader
	kind := ""
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	default:
		data, err := json.Marshal(b)
		if err != nil {
			p.t.Fatal(err)
		}
		r, kind = bytes.NewReader(data), "application/json"
	}
	req, err := http.NewRequest(method, p.http.URL+path, r)
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+fullToken)
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i+1] == "" {
			req.Header.Del(header[i])
		} else {
			req.Header.Set(header[i], header[i+1])
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, data
}

// call is do for a call that answers 200 with a T.
func call[T any](p *podd, method, path string, body any) (v T) {
	p.t.Helper()
	status, _, data := p.do(method, path, body)
	if status != http.StatusOK {
		p.t.Fatalf("%s %s: %d %s", method, path, status, data)
	}
	if err := json.Unmarshal(data, &v); err != nil {
		p.t.Fatalf("%s %s: %v in %s", method, path, err, data)
	}
	return v
}

// refused checks an answer in the error shape.
func (p *podd) refused(method, path string, body any, status int, code string, header ...string) {
	p.t.Helper()
	got, _, data := p.do(method, path, body, header...)
	var e struct {
		Code           int
		Error, Message string
	}
	if err := json.Unmarshal(data, &e); err != nil || got != status || e.Code != status || e.Error != code || e.Message == "" {
		p.t.Errorf("%s %s: got %d %s, want %d %s", method, path, got, data, status, code)
	}
}

func query(kv ...string) string {
	q := url.Values{}
	for i := 0; i < len(kv); i += 2 {
		q.Set(kv[i], kv[i+1])
	}
	return "?" + q.Encode()
}

// worldDir is a directory for any user.
func worldDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "podd-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}
