package server_test

import (
	"os"
	"strings"
	"testing"

	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/podd/server"
)

// Whatever is wrong with a request: it is told, nothing is started and nothing
// is written.
func TestMalformed(t *testing.T) {
	p := start(t, server.Options{})
	dir := worldDir(t)
	os.WriteFile(dir+"/f", []byte("old"), 0o644)
	mark := dir + "/started"
	runs := "touch " + mark
	const jsonType = "application/json"

	for body, code := range map[string]string{
		``: "invalid_command", `null`: "invalid_command", `{}`: "invalid_command", `{"command":""}`: "invalid_command",
		`{"command":"RUN\u0000"}`: "invalid_command",
		`[]`:                      "invalid_json", `"RUN"`: "invalid_json", `{"command":"RUN"`: "invalid_json", `{"command":"RUN"} {}`: "invalid_json",
		`{"command":["RUN"]}`: "invalid_json", `{"command":"RUN","background":"yes"}`: "invalid_json", `{"command":"RUN","uid":-1}`: "invalid_json",
		`{"command":"RUN","uid":1.5}`: "invalid_json", `{"command":"RUN","uid":4294967296}`: "invalid_json", `{"command":"RUN","uid":"0"}`: "invalid_json",
		`{"command":"RUN","envs":[]}`: "invalid_json", `{"command":"RUN","envs":{"A":1}}`: "invalid_json", `{"command":"RUN","timeout_ms":1e99}`: "invalid_json",
		`{"command":"RUN","pty":{"cols":70000}}`: "invalid_json", "{\"command\":\"RUN \xff\"}": "invalid_json",
		`{"command":"RUN \ud83d"}`: "invalid_json", `{"command":"RUN \ud83d\u0041"}`: "invalid_json", `{"command":"RUN \udc00"}`: "invalid_json",
		`{"command":"RUN","uid":4294967295}`: "invalid_user", `{"command":"RUN","user":"no such user"}`: "invalid_user", `{"command":"RUN","user":"root","gid":0}`: "invalid_user",
		`{"command":"RUN","workdir":"/no/such"}`: "workdir_invalid", `{"command":"RUN","workdir":"/etc/passwd"}`: "workdir_invalid", `{"command":"RUN","workdir":"/\u0000"}`: "workdir_invalid",
		`{"command":"RUN","envs":{"":"x"}}`: "invalid_envs", `{"command":"RUN","envs":{"A=B":"x"}}`: "invalid_envs", `{"command":"RUN","envs":{"A":"\u0000"}}`: "invalid_envs",
		`{"command":"RUN","timeout_ms":-1}`: "invalid_timeout", `{"command":"RUN","timeout_ms":9007199254740992}`: "invalid_timeout",
		`{"command":"RUN","output_limit":-1}`: "invalid_output_limit", `{"command":"RUN","pty":{},"separate":true}`: "invalid_separate",
	} {
		body = strings.Replace(body, "RUN", runs, 1)
		p.refused("POST", "/v1/commands/run", body, 400, code, "Content-Type", jsonType)
		if strings.HasPrefix(body, `{"command"`) && strings.HasSuffix(body, "}") { // no less in the background
			p.refused("POST", "/v1/commands/run", strings.TrimSuffix(body, "}")+`,"background":true}`, 400, code, "Content-Type", jsonType)
		}
	}
	p.refused("POST", "/v1/commands/run", `{"command":"`+runs+`","envs":{"A":"`+strings.Repeat("x", 200_000)+`"}}`, 413, "too_large", "Content-Type", jsonType)
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/json2", "application/"} {
		p.refused("POST", "/v1/commands/run", `{"command":"`+runs+`"}`, 415, "unsupported_media", "Content-Type", kind)
	}

	f := query("path", dir+"/f")
	for _, c := range []struct{ method, path, body, code string }{
		{"PUT", "/v1/files", "x", "invalid_path"},
		{"PUT", "/v1/files?path=", "x", "invalid_path"},
		{"PUT", "/v1/files?path=" + dir + "/f%00", "x", "invalid_path"},
		{"PUT", "/v1/files?path=" + dir + "/f%zz", "x", "invalid_query"},
		{"PUT", "/v1/files" + f + "&path=/other", "x", "invalid_query"},
		{"PUT", "/v1/files" + f + ";mode=0644", "x", "invalid_query"},
		{"PUT", "/v1/files" + f + "&mode=999", "x", "invalid_mode"},
		{"PUT", "/v1/files" + f + "&mode=-1", "x", "invalid_mode"},
		{"PUT", "/v1/files" + f + "&mode=10000", "x", "invalid_mode"},
		{"PUT", "/v1/files" + f + "&uid=root", "x", "invalid_user"},
		{"PUT", "/v1/files" + f + "&gid=4294967295", "x", "invalid_user"},
		{"PUT", "/v1/files" + f + "&gid=4294967296", "x", "invalid_user"},
		{"PUT", "/v1/files" + query("path", dir), "x", "is_directory"},
		{"PUT", "/v1/files" + query("path", dir+"/f/g"), "x", "not_directory"},
		{"PUT", "/v1/archive" + f, strings.Repeat("x", 2000), "not_directory"},
		{"PUT", "/v1/archive" + query("path", dir), strings.Repeat("x", 2000), "invalid_archive"},
		{"PUT", "/v1/archive" + query("path", dir, "uid", "x"), "", "invalid_user"},
		{"GET", "/v1/files" + query("path", dir), "", "not_regular"},
		{"GET", "/v1/files/list" + f, "", "not_directory"},
		{"GET", "/v1/files/list", "", "invalid_path"},
		{"GET", "/v1/files/stat?path=%", "", "invalid_query"},
		{"GET", "/v1/archive", "", "invalid_path"},
		{"DELETE", "/v1/files" + f + "&recursive=yes", "", "invalid_query"},
		{"DELETE", "/v1/files?path=/", "", "invalid_path"},
		{"DELETE", "/v1/files", "", "invalid_path"},
		{"GET", "/v1/ports/x/tunnel", "", "invalid_port"},
		{"GET", "/v1/ports/-1/tunnel", "", "invalid_port"},
		{"GET", "/v1/ports/99999/tunnel", "", "invalid_port"},
		{"GET", "/v1/ports/1/tunnel", "", "upgrade_required"},
	} {
		p.refused(c.method, c.path, c.body, 400, c.code)
	}
	for path, code := range map[string]string{"/v1/files/mkdir": "invalid_path", "/v1/files/move": "invalid_path"} {
		p.refused("POST", path, `{}`, 400, code, "Content-Type", jsonType)
		p.refused("POST", path, `{"path":7,"from":7}`, 400, "invalid_json", "Content-Type", jsonType)
	}
	p.refused("POST", "/v1/files/mkdir", poddapi.MkdirRequest{Path: dir + "/d", Mode: "rwx"}, 400, "invalid_mode")
	p.refused("POST", "/v1/files/move", poddapi.MoveRequest{From: dir + "/f"}, 400, "invalid_path")
	p.refused("POST", "/v1/files/move", poddapi.MoveRequest{From: dir, To: dir + "/inside"}, 400, "invalid_path")
	p.refused("PUT", "/v1/env", `{"envs":{"A B":"x"}}`, 400, "invalid_envs", "Content-Type", jsonType)
	p.refused("PUT", "/v1/env", `{"envs":"x"}`, 400, "invalid_json", "Content-Type", jsonType)
	p.refused("POST", "/v1/lifecycle/resume", `{"now":"yesterday"}`, 400, "invalid_json", "Content-Type", jsonType)

	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("there are %v", entries)
	}
	if data, _ := os.ReadFile(dir + "/f"); string(data) != "old" {
		t.Errorf("got %q", data)
	}
	if all := call[poddapi.Commands](p, "GET", "/v1/commands", nil).Commands; len(all) != 0 {
		t.Errorf("started are %+v", all)
	}

	// The same of a command that is there.
	id := "/v1/commands/" + p.run(poddapi.RunRequest{Command: "cat", StdinOpen: true, Background: true}).ID
	for _, c := range []struct{ method, path, body, code string }{
		{"GET", "/logs?cursor=-1", "", "invalid_cursor"},
		{"GET", "/logs?cursor=1x", "", "invalid_cursor"},
		{"GET", "/logs?wait_ms=-1", "", "invalid_wait"},
		{"GET", "/logs?wait_ms=soon", "", "invalid_wait"},
		{"GET", "/logs?follow=yes", "", "invalid_query"},
		{"GET", "/logs?format=xml", "", "invalid_format"},
		{"GET", "/logs?format=raw&follow=1", "", "invalid_format"},
		{"POST", "/stdin?eof=maybe", "lost", "invalid_query"},
		{"POST", "/signal", `{"signal":"NONE"}`, "invalid_signal"},
		{"POST", "/signal", `{}`, "invalid_signal"},
		{"POST", "/signal", `{"signal":9}`, "invalid_json"},
		{"POST", "/resize", `{"cols":-1}`, "invalid_json"},
	} {
		p.refused(c.method, id+c.path, c.body, 400, c.code, "Content-Type", jsonType)
	}
	p.do("POST", id+"/stdin?eof=1", "kept")
	if l := p.logs(strings.TrimPrefix(id, "/v1/commands/"), "?wait_ms=60000"); l.Content != "kept" {
		t.Errorf("got %+v", l)
	}
}
