package sessionapi_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/internal/paneltoken"
	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/sessionapi"
)

// goodCtl answers like the real one and notes its arguments, one a line.
const goodCtl = `
printf '%s\n' "$@" >"$0.args"
case $1 in
stop) echo '{"status":"stopped"}' ;;
*) echo 'progress' >&2; echo '{"status":"running","display":":99","pids":{"xvfb":1}}' ;;
esac`

// tokenOf gives the token in a panel URL.
func tokenOf(t *testing.T, url any) string {
	t.Helper()
	_, rest, ok := strings.Cut(url.(string), "/panel/")
	token, _, ok2 := strings.Cut(rest, "/")
	if !ok || !ok2 {
		t.Fatalf("no panel URL: %v", url)
	}
	return token
}

func TestDesktopStart(t *testing.T) {
	w := newWorld(t)
	w.rt.installCtl(t, goodCtl)
	a := w.replica(sessionapi.Options{})
	id := a.create("")
	nasty := `http://x.example/'$(touch${IFS}pwned)'?a=1&b=%20;echo`
	got := a.want(200, "POST", box(id, "/desktop/start"), `{"resolution":"1600x900x24","initialUrl":"`+nasty+`","expiresInSeconds":600}`).json(t)

	args, _ := os.ReadFile(w.rt.ctl + ".args")
	if want := "start\n--resolution\n1600x900x24\n--url\n" + nasty + "\n"; string(args) != want {
		t.Errorf("the ctl got %q, want %q", args, want)
	}
	run := w.rt.podd(t, id).lastRun()
	if run.UID == nil || *run.UID != 1000 || run.GID == nil || *run.GID != 1000 || run.TimeoutMS == 0 {
		t.Errorf("podd got %+v", run)
	}

	verifier := paneltoken.NewVerifier(w.keys.Panel)
	for key, want := range map[string]struct {
		port int
		path string
	}{
		"desktopUrl":  {8080, "/vnc.html?autoconnect=true&resize=scale"},
		"terminalUrl": {7681, "/"},
		"cdpUrl":      {9222, "/"},
	} {
		token := tokenOf(t, got[key])
		if got[key] != "/panel/"+token+want.path {
			t.Errorf("%s: got %v", key, got[key])
		}
		c, err := verifier.Verify(token)
		if err != nil || c.Port != want.port || c.Sandbox != string(id) || c.Gen != 1 || c.Mode != paneltoken.Control {
			t.Errorf("%s: got %+v, %v", key, c, err)
		}
		if got["expiresAt"] != c.Expires.UTC().Format(time.RFC3339) {
			t.Errorf("expiresAt %v, token until %v", got["expiresAt"], c.Expires)
		}
	}
	if got["status"] != "running" || got["cdpPort"] != 9222.0 {
		t.Errorf("got %v", got)
	}
	rec := a.record(id)
	if !rec.DesktopWanted || len(rec.Ports) != 3 || rec.TokensUntil.IsZero() {
		t.Errorf("record: %+v", rec)
	}

	// Repeated and at once, from a paused sandbox too.
	a.want(204, "POST", box(id, "/pause"), "")
	b := w.replica(sessionapi.Options{})
	for _, status := range many(t, 20, "POST", box(id, "/desktop/start"), "", a, b) {
		if status != 200 {
			t.Errorf("got %d", status)
		}
	}
	if n := a.record(id).Incarnation; n != 2 {
		t.Errorf("incarnation %d: resumed more than once", n)
	}
	args, _ = os.ReadFile(w.rt.ctl + ".args")
	if string(args) != "start\n" {
		t.Errorf("without a body the ctl got %q", args)
	}
	if got := a.want(200, "GET", box(id, "/desktop/status"), "").json(t); got["display"] != ":99" {
		t.Errorf("got %v", got)
	}
	if got := a.want(200, "POST", box(id, "/desktop/stop"), "").json(t); got["status"] != "stopped" {
		t.Errorf("got %v", got)
	}
	if a.record(id).DesktopWanted {
		t.Error("a stopped desktop is still wanted")
	}

	// A sandbox that ended by itself is brought back.
	w.rt.kill(id)
	a.want(200, "POST", box(id, "/desktop/start"), "")
}

func TestDesktopWithoutCDP(t *testing.T) {
	w := newWorld(t)
	w.rt.installCtl(t, goodCtl)
	for name, c := range map[string]struct {
		opts sessionapi.Options
		body string
	}{
		"asked":    {sessionapi.Options{}, `{"exposeCdp":false}`},
		"operator": {sessionapi.Options{HideCDP: true}, `{"exposeCdp":true}`},
	} {
		t.Run(name, func(t *testing.T) {
			a := w.replica(c.opts)
			id := a.create("")
			got := a.want(200, "POST", box(id, "/desktop/start"), c.body).json(t)
			if _, ok := got["cdpUrl"]; ok {
				t.Errorf("got %v", got)
			}
			if _, ok := a.record(id).Ports[9222]; ok {
				t.Error("9222 is registered")
			}
			if c.opts.HideCDP {
				a.refused(400, "port_not_allowed", "POST", box(id, "/panels"), `{"port":9222}`)
				a.refused(400, "port_not_allowed", "PUT", box(id, "/ports/9222"), "")
			}
		})
	}
}

func TestPanelBaseURL(t *testing.T) {
	w := newWorld(t)
	w.rt.installCtl(t, goodCtl)
	for base, want := range map[string]string{
		"https://panels.example.com":           "https://panels.example.com/panel/",
		"https://panels.example.com/x/":        "https://panels.example.com/x/panel/",
		"https://{sandbox}.panels.example.com": "https://ID.panels.example.com/panel/",
	} {
		a := w.replica(sessionapi.Options{PanelBaseURL: base})
		id := a.create("")
		want = strings.Replace(want, "ID", string(id), 1)
		got := a.want(200, "POST", box(id, "/desktop/start"), "").json(t)
		for _, key := range []string{"desktopUrl", "terminalUrl", "cdpUrl"} {
			if !strings.HasPrefix(got[key].(string), want) {
				t.Errorf("got %v, want %s…", got[key], want)
			}
		}
	}
}

func TestDesktopErrors(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{DesktopTimeout: 300 * time.Millisecond})
	id := a.create("")
	start := box(id, "/desktop/start")

	a.refused(422, "desktop_not_installed", "POST", start, "")
	a.refused(422, "desktop_not_installed", "GET", box(id, "/desktop/status"), "")

	for name, c := range map[string]struct {
		script, code string
		status       int
	}{
		"hangs":           {`echo begun >&2; echo 'xvfb: waiting' >&2; exec sleep 60`, "desktop_start_timeout", 504},
		"says timeout":    {`echo '{"status":"error","error":"chromium_timeout","message":"slow"}'; exit 1`, "desktop_start_timeout", 504},
		"says error":      {`echo '{"status":"error","error":"display_in_use","message":"m"}'; exit 1`, "desktop_failed", 502},
		"says nothing":    {`exit 127`, "desktop_failed", 502},
		"error with 0":    {`echo nonsense`, "desktop_failed", 502},
		"missing's own":   {`echo out; exit 97`, "desktop_failed", 502},
		"not a script":    {"\x00\x01", "desktop_failed", 502},
		"noise then line": {`echo noise; echo '{"status":"running"}'`, "", 200},
	} {
		t.Run(name, func(t *testing.T) {
			// A new file each time: one that still runs cannot be written.
			w.rt.ctl = filepath.Join(t.TempDir(), "ctl")
			w.rt.installCtl(t, c.script)
			ans := a.call("POST", start, "")
			if ans.status != c.status || ans.code() != c.code {
				t.Errorf("got %s, want %d %s", ans, c.status, c.code)
			}
			if name == "hangs" && !strings.Contains(string(ans.body), "it last said: xvfb: waiting") {
				t.Errorf("the ctl's last word is lost: %s", ans)
			}
			if name == "says error" && !strings.Contains(string(ans.body), "display_in_use") {
				t.Errorf("the ctl's own code is lost: %s", ans)
			}
		})
	}
	for body, code := range map[string]string{
		`{"resolution":"1280x800"}`:                "invalid_resolution",
		`{"resolution":"1280x800x16"}`:             "invalid_resolution",
		`{"resolution":"319x200x24"}`:              "invalid_resolution",
		`{"resolution":"3840x2161x24"}`:            "invalid_resolution",
		`{"resolution":"1280x800x24\n"}`:           "invalid_resolution",
		`{"initialUrl":"file:///etc/passwd"}`:      "invalid_url",
		`{"initialUrl":"javascript:alert(1)"}`:     "invalid_url",
		`{"initialUrl":"http://"}`:                 "invalid_url",
		`{"initialUrl":"--remote-debugging-port"}`: "invalid_url",
		`{"initialUrl":"http://a b/"}`:             "invalid_url",
		`{"expiresInSeconds":0}`:                   "invalid_expiry",
		`{"expiresInSeconds":86401}`:               "invalid_expiry",
		`{"expiresInSeconds":"60"}`:                "invalid_body",
		`{"exposeCdp":1}`:                          "invalid_body",
		`[]`:                                       "invalid_body",
	} {
		a.refused(400, code, "POST", start, body)
	}
	if got := counter(t, a, "error"); got != 22 {
		t.Errorf("%v errors counted", got)
	}
	if got := counter(t, a, "unsupported"); got != 1 {
		t.Errorf("%v unsupported counted", got)
	}
	if got := counter(t, a, "ok"); got != 1 {
		t.Errorf("%v ok counted", got)
	}

	off := w.replica(sessionapi.Options{NoDesktop: true})
	for _, call := range []string{"POST start", "GET status", "POST stop"} {
		method, verb, _ := strings.Cut(call, " ")
		off.refused(422, "desktop_disabled", method, box(id, "/desktop/"+verb), "")
	}
	a.want(204, "POST", box(id, "/pause"), "")
	a.refused(409, "sandbox_state", "GET", box(id, "/desktop/status"), "")
	a.refused(404, "sandbox_not_found", "POST", box(session.NewID(), "/desktop/start"), "")
}

// counter reads cubepod_desktop_activations_total.
func counter(t *testing.T, r *replica, result string) float64 {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "cubepod_desktop_activations_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == result {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("no counter for %s", result)
	return 0
}
