package server_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/podd/server"
)

func (p *podd) run(r poddapi.RunRequest) poddapi.RunResponse {
	p.t.Helper()
	return call[poddapi.RunResponse](p, "POST", "/v1/commands/run", r)
}

func (p *podd) logs(id, query string) poddapi.Logs {
	p.t.Helper()
	return call[poddapi.Logs](p, "GET", "/v1/commands/"+id+"/logs"+query, nil)
}

func TestRun(t *testing.T) {
	p := start(t, server.Options{})
	r := p.run(poddapi.RunRequest{Command: "echo hi"})
	if r.Output != "hi\n" || r.Cursor != 3 || r.ExitCode == nil || *r.ExitCode != 0 || r.Running || r.Truncated || r.OutputB64 != "" || r.PID <= 0 {
		t.Errorf("got %+v", r)
	}
	if l := p.logs(r.ID, ""); l.Content != "hi\n" || l.Cursor != 3 || l.ID != r.ID {
		t.Errorf("got %+v", l)
	}
	r = p.run(poddapi.RunRequest{Command: "true", Background: true})
	if !r.Running || r.ExitCode != nil {
		t.Errorf("background: got %+v", r)
	}
	if all := call[poddapi.Commands](p, "GET", "/v1/commands", nil).Commands; len(all) != 2 || all[1].ID != r.ID {
		t.Errorf("got %+v", all)
	}
	r = p.run(poddapi.RunRequest{Command: `echo out; printf '\377' >&2`, Separate: true})
	if r.Stdout == nil || *r.Stdout != "out\n" || r.StdoutB64 != "" || r.StderrB64 != "/w==" || *r.Stderr != "\uFFFD" {
		t.Errorf("separate: got %+v", r)
	}
}

func TestOutputIsExact(t *testing.T) {
	p := start(t, server.Options{})
	r := p.run(poddapi.RunRequest{Command: `printf '\377\376A\0B'`})
	if raw, _ := base64.StdEncoding.DecodeString(r.OutputB64); string(raw) != "\xff\xfeA\x00B" || r.Cursor != 5 {
		t.Errorf("got %+v", r)
	}
	_, h, data := p.do("GET", "/v1/commands/"+r.ID+"/logs?format=raw&cursor=1", nil)
	if string(data) != "\xfeA\x00B" || h.Get("X-Cubepod-Cursor") != "5" {
		t.Errorf("raw: got %q, %v", data, h)
	}
	r = p.run(poddapi.RunRequest{Command: "printf 'aé汉😀z'", OutputLimit: 8})
	if r.Output != "aé汉" || r.Cursor != 6 || !r.Truncated {
		t.Errorf("limit: got %+v", r)
	}
	if l := p.logs(r.ID, "?cursor=6"); l.Content != "😀z" || l.Cursor != 11 || l.Truncated {
		t.Errorf("got %+v", l)
	}
	if l := p.logs(r.ID, "?cursor=2"); l.ContentB64 == "" || l.Cursor != 11 {
		t.Errorf("inside a character: got %+v", l)
	}
}

func TestCursor(t *testing.T) {
	p := start(t, server.Options{})
	r := p.run(poddapi.RunRequest{Command: "echo hi"})
	for _, q := range []string{"?cursor=3", "?cursor=9999"} {
		if l := p.logs(r.ID, q); l.Content != "" || l.Cursor != 3 {
			t.Errorf("%s: got %+v", q, l)
		}
	}
	for _, q := range []string{"-1", "abc", "1.5", "99999999999999999999"} {
		p.refused("GET", "/v1/commands/"+r.ID+"/logs?cursor="+q, nil, 400, "invalid_cursor")
	}
	long := p.run(poddapi.RunRequest{Command: "yes | head -c 3000000"})
	if len(long.Output) != poddapi.MaxOutput || long.Cursor != poddapi.MaxOutput || !long.Truncated {
		t.Errorf("got %d bytes, cursor %d", len(long.Output), long.Cursor)
	}
	var at, n int64
	for {
		l := p.logs(long.ID, query("cursor", strconv.FormatInt(at, 10)))
		if len(l.Content) == 0 {
			break
		}
		n += int64(len(l.Content))
		at = l.Cursor
	}
	if n != 3_000_000 || at != n {
		t.Errorf("got %d bytes up to %d", n, at)
	}
}

func TestLongPoll(t *testing.T) {
	p := start(t, server.Options{})
	// Half a character is held back while the rest may come; bytes that can
	// never become one are not.
	r := p.run(poddapi.RunRequest{Command: `printf '\303'; read x; printf '\251'; read x; printf '\300'; read x`, StdinOpen: true, Background: true})
	if l := p.logs(r.ID, "?wait_ms=50"); l.Content != "" || l.Cursor != 0 || !l.Running {
		t.Errorf("got %+v", l)
	}
	next := func() {
		if status, _, data := p.do("POST", "/v1/commands/"+r.ID+"/stdin", "\n"); status != 204 {
			t.Fatalf("got %d %s", status, data)
		}
	}
	next()
	if l := p.logs(r.ID, "?wait_ms=60000"); l.Content != "é" || l.Cursor != 2 {
		t.Errorf("got %+v", l)
	}
	next()
	if l := p.logs(r.ID, "?wait_ms=60000&cursor=2"); l.ContentB64 != "wA==" || l.Cursor != 3 {
		t.Errorf("got %+v", l)
	}
	next()
	if l := p.logs(r.ID, "?wait_ms=60000&cursor=3"); l.Running || l.Cursor != 3 {
		t.Errorf("got %+v", l)
	}
}

func TestFollow(t *testing.T) {
	p := start(t, server.Options{})
	r := p.run(poddapi.RunRequest{Command: `echo one; read x; printf '\377'; exit 3`, StdinOpen: true, Background: true})
	req, _ := http.NewRequestWithContext(t.Context(), "GET", p.http.URL+"/v1/commands/"+r.ID+"/logs?follow=1", nil)
	req.Header.Set("Authorization", "Bearer "+fullToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if ct := resp.Header.Get("Content-Type"); ct != "text/event-stream" {
		t.Errorf("got %s", ct)
	}
	var events []string
	for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
		events = append(events, sc.Text())
		if strings.Contains(sc.Text(), "one") {
			p.do("POST", "/v1/commands/"+r.ID+"/stdin", "\n")
		}
	}
	if len(events) != 9 || events[0] != "event: output" || events[1] != `data: {"content":"one\n","cursor":4}` ||
		events[4] != `data: {"content":"`+"\uFFFD"+`","content_b64":"/w==","cursor":5}` || events[6] != "event: end" || !strings.Contains(events[7], `"exit_code":3`) {
		t.Errorf("got %q", events)
	}
}

func TestKillAndSignal(t *testing.T) {
	p := start(t, server.Options{})
	r := p.run(poddapi.RunRequest{Command: "exec sleep 300", Background: true})
	if k := call[poddapi.Killed](p, "POST", "/v1/commands/"+r.ID+"/kill", nil); k != (poddapi.Killed{Status: "killed", ID: r.ID}) {
		t.Errorf("got %+v", k)
	}
	k := call[poddapi.KillExited](p, "POST", "/v1/commands/"+r.ID+"/kill", nil)
	if k.Word != "exited" || k.ID != r.ID || k.ExitCode == nil || *k.ExitCode != 137 || k.Signal != "SIGKILL" {
		t.Errorf("got %+v", k)
	}
	p.refused("POST", "/v1/commands/"+r.ID+"/signal", poddapi.SignalRequest{Signal: "TERM"}, 409, "not_running")
	p.refused("POST", "/v1/commands/"+r.ID+"/resize", poddapi.Size{Cols: 1, Rows: 1}, 409, "no_terminal")
	r = p.run(poddapi.RunRequest{Command: "exec sleep 300", Background: true})
	if s := call[poddapi.Status](p, "POST", "/v1/commands/"+r.ID+"/signal", poddapi.SignalRequest{Signal: "TERM"}); s.ID != r.ID {
		t.Errorf("got %+v", s)
	}
	if l := p.logs(r.ID, "?wait_ms=60000"); l.Running || l.Signal != "SIGTERM" {
		t.Errorf("got %+v", l)
	}
}

// A caller that goes away leaves its command running.
func TestTheCallerMayLeave(t *testing.T) {
	p := start(t, server.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "POST", p.http.URL+"/v1/commands/run", strings.NewReader(`{"command":"read x; echo still here","stdin_open":true}`))
	req.Header.Set("Authorization", "Bearer "+fullToken)
	req.Header.Set("Content-Type", "application/json")
	if _, err := http.DefaultClient.Do(req); err == nil {
		t.Fatal("the run was answered")
	}
	all := call[poddapi.Commands](p, "GET", "/v1/commands", nil).Commands
	if len(all) != 1 || !all[0].Running {
		t.Fatalf("got %+v", all)
	}
	p.do("POST", "/v1/commands/"+all[0].ID+"/stdin?eof=1", "x\n")
	if l := p.logs(all[0].ID, "?wait_ms=60000"); l.Content != "still here\n" {
		t.Errorf("got %+v", l)
	}
}
