package sessionapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi"
)

func TestKeys(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{})
	id := a.create("")
	for _, path := range []string{"/sandboxes", "/v2/sandboxes", box(id), box(id, "/ports"), box(id, "/commands")} {
		for _, key := range []string{"", "wrong"} {
			if got := a.as(key).call("GET", path, ""); got.status != 401 || got.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s with key %q: got %s", path, key, got)
			}
		}
		a.as(rootKey).want(200, "GET", path, "")
	}
	for _, path := range []string{"/health", "/ready", "/openapi.yaml", "/", "/console/app.js"} {
		a.as("").want(200, "GET", path, "")
	}
	bob := a.as(bobKey)
	for _, c := range []string{"GET ", "DELETE ", "POST /pause", "POST /desktop/start", "POST /panels", "POST /commands/run", "GET /files"} {
		method, path, _ := strings.Cut(c, " ")
		bob.refused(404, "sandbox_not_found", method, box(id, path), "")
	}
	if got := bob.call("GET", "/sandboxes", ""); strings.TrimSpace(string(got.body)) != "[]" {
		t.Errorf("bob sees %s", got)
	}

	req, _ := http.NewRequestWithContext(t.Context(), "GET", a.url+box(id), nil)
	req.Header.Set("Authorization", "bearer "+aliceKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("Authorization: got %d", resp.StatusCode)
	}
}

func TestParseAPIKeys(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	for name, c := range map[string]struct {
		in string
		ok bool
	}{
		"one":           {"a sha256:" + sum, true},
		"comments":      {"# c\n\na sha256:" + sum + " admin\n", true},
		"same name":     {"a sha256:" + sum + "\na sha256:" + strings.Repeat("cd", 32), true},
		"empty":         {"\n", false},
		"plain key":     {"a secret", false},
		"short":         {"a sha256:abcd", false},
		"no hex":        {"a sha256:" + strings.Repeat("zz", 32), false},
		"another role":  {"a sha256:" + sum + " root", false},
		"a name's form": {"a/b sha256:" + sum, false},
	} {
		if _, err := sessionapi.ParseAPIKeys(strings.NewReader(c.in)); (err == nil) != c.ok {
			t.Errorf("%s: got %v", name, err)
		} else if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error quotes the line: %v", name, err)
		}
	}
}

func TestCreateRefuses(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{})
	for body, want := range map[string]string{
		``:                                                    "400 invalid_template",
		`{}`:                                                  "400 invalid_template",
		`{"templateID":"nope"}`:                               "404 template_not_found",
		`{"templateID":7}`:                                    "400 invalid_body",
		`{"templateid":"base"}`:                               "400 invalid_template", // another key
		`"base"`:                                              "400 invalid_body",
		`{"templateID":"base"`:                                "400 invalid_body",
		`{"templateID":"base"} {}`:                            "400 invalid_body",
		`{"templateID":"base","timeout":0}`:                   "400 invalid_timeout",
		`{"templateID":"base","timeout":-1}`:                  "400 invalid_timeout",
		`{"templateID":"base","timeout":86401}`:               "400 invalid_timeout",
		`{"templateID":"base","timeout":"300"}`:               "400 invalid_body",
		`{"templateID":"base","timeout":1.5}`:                 "400 invalid_body",
		`{"templateID":"base","timeout":1e99}`:                "400 invalid_body",
		`{"templateID":"base","idleTimeout":-1}`:              "400 invalid_timeout",
		`{"templateID":"base","metadata":[]}`:                 "400 invalid_body",
		`{"templateID":"base","metadata":{"a":1}}`:            "400 invalid_body",
		`{"templateID":"base","metadata":{"a":null}}`:         "400 invalid_body",
		`{"templateID":"base","envVars":{"a":null}}`:          "400 invalid_body",
		`{"templateID":"base","metadata":{"":"x"}}`:           "400 invalid_metadata",
		`{"templateID":"base","envVars":{"A=B":"x"}}`:         "400 invalid_env_vars",
		`{"templateID":"base","envVars":{"A":"x\u0000"}}`:     "400 invalid_env_vars",
		`{"templateID":"base","autoPause":"yes"}`:             "400 invalid_body",
		`{"templateID":"base","allow_internet_access":false}`: "400 unsupported",
		`{"templateID":"base","allowInternetAccess":false}`:   "400 unsupported",
		`{"templateID":"base","network":{"denyOut":["*"]}}`:   "400 unsupported",
		`{"templateID":"base","metadata":{"a":"` + strings.Repeat("x", 17<<10) + `"}}`: "400 invalid_metadata",
		`{"templateID":"` + strings.Repeat("x", 2<<20) + `"}`:                          "413 too_large",
	} {
		got := a.call("POST", "/sandboxes", body)
		if s := fmt.Sprintf("%d %s", got.status, got.code()); s != want {
			t.Errorf("%.80s: got %s, want %s", body, got, want)
		}
	}
	if boxes, _ := w.rt.count(); boxes != 0 {
		t.Errorf("%d sandboxes were made", boxes)
	}
	a.want(201, "POST", "/sandboxes", `{"templateID":"base","timeout":null,"allow_internet_access":true,"secure":true,"network":{},"x":{}}`)
}

func TestOtherCallsRefuse(t *testing.T) {
	a := newWorld(t).replica(sessionapi.Options{})
	id := a.create("")
	for _, c := range []struct {
		status                   int
		code, method, path, body string
	}{
		{400, "invalid_timeout", "POST", box(id, "/timeout"), ``},
		{400, "invalid_timeout", "POST", box(id, "/timeout"), `{"timeout":0}`},
		{400, "invalid_body", "POST", box(id, "/timeout"), `{"timeout":true}`},
		{400, "invalid_timeout", "POST", box(id, "/refreshes"), `{"duration":86401}`},
		{400, "invalid_timeout", "POST", box(id, "/connect"), `{"timeout":0}`},
		{400, "invalid_state", "GET", "/v2/sandboxes?state=running,nope", ``},
		{400, "invalid_state", "GET", "/v2/sandboxes?state=deleted", ``},
		{400, "invalid_limit", "GET", "/v2/sandboxes?limit=0", ``},
		{400, "invalid_limit", "GET", "/v2/sandboxes?limit=x", ``},
		{400, "invalid_token", "GET", "/v2/sandboxes?nextToken=abc", ``},
		{400, "invalid_metadata", "GET", "/v2/sandboxes?metadata=%25zz", ``},
		{400, "invalid_query", "GET", "/v2/sandboxes?metadata=%zz", ``},
		{400, "invalid_query", "GET", "/sandboxes?state=running;metadata=a", ``},
		{404, "sandbox_not_found", "GET", "/sandboxes/short", ``},
		{404, "sandbox_not_found", "GET", box(session.NewID()), ``},
		{404, "not_found", "GET", "/nope", ``},
		{405, "method_not_allowed", "PATCH", box(id), ``},
		{405, "method_not_allowed", "GET", box(id, "/pause"), ``},
	} {
		a.refused(c.status, c.code, c.method, c.path, c.body)
	}
	if got := a.call("POST", box(id, "/timeout"), `{"timeout":"60"}`); !strings.Contains(string(got.body), `"timeout must be a whole number"`) {
		t.Errorf("got %s", got)
	}
	if got := a.call("PATCH", box(id), ""); got.header.Get("Allow") == "" || got.header.Get("X-Request-ID") == "" {
		t.Errorf("got %v", got.header)
	}
}

func TestList(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{})
	var made []session.ID
	for i := range 7 {
		made = append(made, a.create(fmt.Sprintf(`,"metadata":{"n":"%d","parity":"%d"}`, i, i%2)))
	}
	a.as(bobKey).create("")
	a.want(204, "POST", box(made[0], "/pause"), "")
	a.want(204, "DELETE", box(made[1]), "")
	ids := func(r *replica, query string) (out []session.ID, next string) {
		t.Helper()
		got := r.want(200, "GET", query, "")
		var items []struct {
			SandboxID session.ID
			State     string
		}
		if err := json.Unmarshal(got.body, &items); err != nil {
			t.Fatal(err)
		}
		for _, i := range items {
			out = append(out, i.SandboxID)
		}
		return out, got.header.Get("X-Next-Token")
	}
	all := []session.ID{made[6], made[5], made[4], made[3], made[2], made[0]}
	for query, want := range map[string][]session.ID{
		"/sandboxes":                                  all,
		"/v2/sandboxes":                               all,
		"/v2/sandboxes?state=paused":                  {made[0]},
		"/v2/sandboxes?state=running&state=failed":    all[:5],
		"/v2/sandboxes?metadata=parity%3D0":           {made[6], made[4], made[2], made[0]},
		"/v2/sandboxes?metadata=parity%3D0%26n%3D4":   {made[4]},
		"/v2/sandboxes?metadata=nope%3D":              nil,
		"/v2/sandboxes?state=creating,deleting":       nil,
		"/v2/sandboxes?state=paused&metadata=n%3D0":   {made[0]},
		"/v2/sandboxes?state=running,paused&limit=10": all,
	} {
		if got, next := ids(a, query); fmt.Sprint(got) != fmt.Sprint(want) || next != "" {
			t.Errorf("%s: got %v %q, want %v", query, got, next, want)
		}
	}
	var paged []session.ID
	token, pages := "", 0
	for {
		got, next := ids(a, "/v2/sandboxes?limit=2&nextToken="+token)
		paged = append(paged, got...)
		if pages++; next == "" {
			break
		}
		token = next
	}
	if fmt.Sprint(paged) != fmt.Sprint(all) || pages != 3 {
		t.Errorf("got %v in %d pages, want %v", paged, pages, all)
	}
	if got, _ := ids(a.as(rootKey), "/sandboxes"); len(got) != 7 {
		t.Errorf("the administrator sees %d", len(got))
	}
}

func TestEnds(t *testing.T) {
	w := newWorld(t)
	a, b := w.replica(sessionapi.Options{}), w.replica(sessionapi.Options{})
	dies := a.create(`,"timeout":1`)
	pauses := a.create(`,"timeout":1,"autoPause":true`)
	idle := a.create(`,"idleTimeout":1`)
	lives := a.create(`,"timeout":1`)
	a.want(204, "POST", box(lives, "/timeout"), `{"timeout":600}`)
	shortened := a.create("")
	a.want(204, "POST", box(shortened, "/timeout"), `{"timeout":1}`)
	refreshed := a.create(`,"timeout":2`)
	a.want(204, "POST", box(refreshed, "/refreshes"), `{"duration":600}`)

	// The state is read from the store: a call of the API is use.
	is := func(id session.ID, st session.State) {
		t.Helper()
		testutil.Eventually(t, fmt.Sprintf("%s is %s", id, st), func() bool { return a.record(id).State == st })
	}
	is(dies, session.Deleted)
	is(shortened, session.Deleted)
	is(pauses, session.Paused)
	is(idle, session.Paused)
	is(lives, session.Running)
	is(refreshed, session.Running)
	b.refused(404, "sandbox_not_found", "GET", box(dies), "")
	// A resumed one gets its time anew.
	a.want(201, "POST", box(pauses, "/resume"), "")
	is(pauses, session.Paused)
}

func TestUseKeepsAwake(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{})
	busy, idle := a.create(`,"idleTimeout":2`), a.create(`,"idleTimeout":2`)
	done := make(chan answer, 1)
	go func() {
		ans, _ := a.try(t.Context(), "POST", box(busy, "/commands/run"), `{"command":"sleep 4"}`)
		done <- ans
	}()
	testutil.Eventually(t, "the idle one is paused", func() bool { return a.record(idle).State == session.Paused })
	if got := <-done; got.status != 200 || a.record(busy).Incarnation != 1 || a.record(busy).State != session.Running {
		t.Errorf("a sandbox was paused under a running call: %s, %+v", got, a.record(busy))
	}
}
