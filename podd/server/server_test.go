package server_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/podd/command"
	"github.com/cubeplexai/cubepod/podd/server"
)

func TestWhoMayCall(t *testing.T) {
	p := start(t, server.Options{})
	run := poddapi.RunRequest{Command: "true"}
	const auth = "Authorization"
	p.refused("POST", "/v1/commands/run", run, 401, "unauthorized", auth, "")
	p.refused("POST", "/v1/commands/run", run, 401, "unauthorized", auth, "Bearer wrong")
	p.refused("POST", "/v1/commands/run", run, 401, "unauthorized", auth, "Basic "+fullToken)
	p.refused("POST", "/v1/commands/run", run, 403, "tunnel_token", auth, "Bearer "+tunnelToken)
	p.refused("GET", "/no/such", nil, 401, "unauthorized", auth, "")
	p.refused("GET", "/metrics", nil, 401, "unauthorized", auth, "")
	p.refused("GET", "/v1/ports/1/tunnel", nil, 400, "upgrade_required", auth, "Bearer "+tunnelToken)
	p.refused("POST", "/v1/commands/run", run, 403, "origin_refused", "Origin", "null")
	p.refused("GET", "/health", nil, 403, "origin_refused", "Origin", "http://127.0.0.1:49983")
	if status, _, _ := p.do("GET", "/health", nil, auth, ""); status != http.StatusOK {
		t.Errorf("health: got %d", status)
	}
}

func TestWrongCalls(t *testing.T) {
	p := start(t, server.Options{})
	p.refused("GET", "/v1/nothing", nil, 404, "not_found")
	p.refused("DELETE", "/v1/commands", nil, 405, "method_not_allowed")
	p.refused("POST", "/v1/commands/run", `{"command":"true"}`, 415, "unsupported_media", "Content-Type", "text/plain")
	p.refused("POST", "/v1/commands/run", `{"command":"true"}`, 415, "unsupported_media")
	p.refused("POST", "/v1/commands/run", `{"command":`, 400, "invalid_json", "Content-Type", "application/json")
	p.refused("POST", "/v1/commands/run", `{"command":7}`, 400, "invalid_json", "Content-Type", "application/json")
	if _, _, data := p.do("POST", "/v1/commands/run", `{"command":7}`, "Content-Type", "application/json"); !strings.Contains(string(data), `"command must be a string"`) {
		t.Errorf("got %s", data)
	}
	p.refused("POST", "/v1/commands/run", `{"Command":"true"}`, 400, "invalid_command", "Content-Type", "application/json") // another key
	p.refused("POST", "/v1/commands/run", `{"command":"`+strings.Repeat("x", poddapi.MaxJSON)+`"}`, 413, "too_large", "Content-Type", "application/json")
	p.refused("POST", "/v1/commands/run", nil, 400, "invalid_command")
	for _, call := range []string{"status", "logs"} {
		p.refused("GET", "/v1/commands/proc-9/"+call, nil, 404, "command_not_found")
	}
	p.refused("POST", "/v1/commands/proc-9/kill", nil, 404, "command_not_found")
	if status, _, _ := p.do("POST", "/v1/commands/run", `{"command":"true"}`, "Content-Type", "application/json; charset=utf-8"); status != 200 {
		t.Errorf("got %d", status)
	}
}

func TestHealthAndMetrics(t *testing.T) {
	p := start(t, server.Options{Version: "v1"})
	c := call[poddapi.RunResponse](p, "POST", "/v1/commands/run", poddapi.RunRequest{Command: "exec sleep 300", Background: true})
	h := call[poddapi.Health](p, "GET", "/health", nil)
	if want := (poddapi.Health{Status: "ok", Daemon: "podd", Version: "v1", Workdir: "/", ActiveProcesses: 1, InitState: "none"}); h != want {
		t.Errorf("got %+v", h)
	}
	_, _, data := p.do("GET", "/metrics", nil)
	if !strings.Contains(string(data), "\ncubepod_podd_active_processes 1\n") {
		t.Errorf("got %s", data)
	}
	p.do("POST", "/v1/commands/"+c.ID+"/kill", nil)
	if h := call[poddapi.Health](p, "GET", "/health", nil); h.ActiveProcesses != 0 {
		t.Errorf("got %+v", h)
	}
}

// desktop records what is asked of it.
type desktop struct{ stopped, allowed int }

func (d *desktop) Stop(context.Context) error { d.stopped++; return errors.New("no matter") }
func (d *desktop) Allow()                     { d.allowed++ }

func TestLifecycle(t *testing.T) {
	d := &desktop{}
	p := start(t, server.Options{Desktop: d})
	call[poddapi.RunResponse](p, "POST", "/v1/commands/run", poddapi.RunRequest{Command: "exec sleep 300", Background: true})
	for range 2 {
		if s := call[poddapi.Stopped](p, "POST", "/v1/lifecycle/prepare-stop", nil); s != (poddapi.Stopped{Status: "synced", ActiveProcesses: 1}) {
			t.Errorf("got %+v", s)
		}
		p.refused("POST", "/v1/commands/run", poddapi.RunRequest{Command: "true"}, 503, "stopping")
	}
	if r := call[poddapi.Resumed](p, "POST", "/v1/lifecycle/resume", struct{}{}); r.Status != "running" {
		t.Errorf("got %+v", r)
	}
	call[poddapi.RunResponse](p, "POST", "/v1/commands/run", poddapi.RunRequest{Command: "true"})
	if d.stopped != 2 || d.allowed != 1 {
		t.Errorf("got %+v", d)
	}
}

func TestResumeCorrectsTheClock(t *testing.T) {
	var set []time.Time
	p := start(t, server.Options{SetClock: func(now time.Time) error { set = append(set, now); return nil }})
	for name, c := range map[string]struct {
		off  time.Duration // the caller's clock from podd's
		want bool
	}{
		"slept": {time.Hour, true}, "a little": {time.Second, true}, "in time": {0, false},
		"the message took its time": {-2 * time.Second, false}, "ahead": {-time.Minute, true},
	} {
		set = nil
		now := time.Now().Add(c.off)
		call[poddapi.Resumed](p, "POST", "/v1/lifecycle/resume", poddapi.ResumeRequest{Now: &now})
		if got := len(set) == 1 && set[0].Equal(now); got != c.want || len(set) > 1 {
			t.Errorf("%s: set to %v", name, set)
		}
	}
}

func TestEnv(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run/env.sh")
	p := start(t, server.Options{EnvFile: file})
	values := map[string]string{"A": "plain", "B": "it's $HOME `id` \\ \"x\"\nline", "C": ""}
	if status, _, data := p.do("PUT", "/v1/env", poddapi.EnvRequest{Envs: values}); status != 204 {
		t.Fatalf("got %d %s", status, data)
	}
	fi, err := os.Stat(file)
	if err != nil || fi.Mode() != 0o644 {
		t.Errorf("got %v, %v", fi.Mode(), err)
	}
	data, _ := os.ReadFile(file)
	got := call[poddapi.RunResponse](p, "POST", "/v1/commands/run", poddapi.RunRequest{Command: string(data) + `printf '%s|%s|%s' "$A" "$B" "${C-unset}"`})
	if want := values["A"] + "|" + values["B"] + "|"; got.Output != want {
		t.Errorf("got %q, want %q", got.Output, want)
	}
	for _, name := range []string{"", "1A", "A B", "A=B", "A;id"} {
		p.refused("PUT", "/v1/env", poddapi.EnvRequest{Envs: map[string]string{name: ""}}, 400, "invalid_envs")
	}
}

func TestListenUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "podd.sock")
	quiet := log.New(io.Discard, "", 0)
	m, err := command.Open(command.Options{StateDir: t.TempDir(), Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	// What a podd that was killed leaves: a socket without a listener.
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()

	a := server.New(m, server.Options{Addr: "unix:" + path, Log: quiet})
	if err := a.Listen(); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", fi.Mode(), err)
	}
	b := server.New(m, server.Options{Addr: "unix:" + path, Log: quiet})
	if err := b.Listen(); err == nil {
		t.Error("a second server took the socket")
	}
	served := make(chan error)
	go func() { served <- a.Serve() }()
	rt := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return net.Dial("unix", path) }}
	if h, err := poddapi.NewClient(rt, "").Health(t.Context()); err != nil || h.Status != "ok" {
		t.Errorf("got %+v, %v", h, err)
	}
	rt.CloseIdleConnections()
	if err := a.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestReadTokens(t *testing.T) {
	dir := t.TempDir()
	for content, ok := range map[string]bool{
		"a\nb\n": true, "a": true, "": false, "\nb\n": false,
		poddapi.TokenFile("a", "b"): true, "sha256:ab": false, "a\nsha256:" + strings.Repeat("z", 64): false,
	} {
		path := filepath.Join(dir, "token")
		os.WriteFile(path, []byte(content), 0o600)
		if _, err := server.ReadTokens(path); (err == nil) != ok {
			t.Errorf("%q: got %v", content, err)
		}
	}
	if _, err := server.ReadTokens(dir + "/none"); err == nil {
		t.Error("an absent file is no error")
	}
	os.WriteFile(dir+"/hashed", []byte(poddapi.TokenFile("a", "b")), 0o600)
	if got, err := server.ReadTokens(dir + "/hashed"); err != nil || got != server.NewTokens("a", "b") {
		t.Errorf("hashes: got %v", err)
	}
}
