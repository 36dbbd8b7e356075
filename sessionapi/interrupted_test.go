package sessionapi_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi"
)

// TestInterruptedCalls has a sandbox paused, deleted and resumed while calls
// wait for its podd. They learn that, and not that podd is broken.
func TestInterruptedCalls(t *testing.T) {
	w := newWorld(t)
	w.rt.installCtl(t, "exec sleep 60")
	a := w.replica(sessionapi.Options{SweepInterval: time.Hour})
	for name, c := range map[string]struct {
		change []string
		status int
		code   string
		says   string
	}{
		"paused":  {[]string{"POST /pause"}, 409, "sandbox_state", "paus"}, // pausing or paused
		"resumed": {[]string{"POST /pause", "POST /resume"}, 409, "sandbox_state", "during the call"},
		"deleted": {[]string{"DELETE "}, 404, "sandbox_not_found", ""},
	} {
		for _, call := range []string{"POST /commands/run", "GET /desktop/status"} {
			t.Run(name+" "+call, func(t *testing.T) {
				id := a.create("")
				podd := w.rt.podd(t, id)
				cut := make(chan answer, 1)
				go func() {
					method, path, _ := strings.Cut(call, " ")
					body := ""
					if method == "POST" {
						body = `{"command":"exec sleep 60"}`
					}
					got, err := a.try(t.Context(), method, box(id, path), body)
					if err != nil {
						t.Error(err)
					}
					cut <- got
				}()
				testutil.Eventually(t, "podd has the call", func() bool {
					podd.mu.Lock()
					defer podd.mu.Unlock()
					return len(podd.runs) == 1
				})
				for _, change := range c.change {
					method, path, _ := strings.Cut(change, " ")
					if got := a.call(method, box(id, path), ""); got.status >= 300 {
						t.Fatalf("%s: got %s", change, got)
					}
				}
				if got := <-cut; got.status != c.status || got.code() != c.code || !strings.Contains(string(got.body), c.says) {
					t.Errorf("got %s, want %d %s", got, c.status, c.code)
				}
			})
		}
	}
}

// TestPoddThatStopsIsNoError is a call that reaches podd at the moment at which
// it prepares for a pause.
func TestPoddThatStopsIsNoError(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{})
	id := a.create("")
	podd := w.rt.podd(t, id)
	podd.mu.Lock()
	podd.stopping, podd.refused = make(chan struct{}), make(chan struct{})
	podd.mu.Unlock()
	ran := make(chan answer, 1)
	go func() {
		got, err := a.try(t.Context(), "POST", box(id, "/commands/run"), `{"command":"true"}`)
		if err != nil {
			t.Error(err)
		}
		ran <- got
	}()
	testutil.Eventually(t, "podd has the call", func() bool {
		podd.mu.Lock()
		defer podd.mu.Unlock()
		return len(podd.runs) == 1
	})
	a.want(204, "POST", box(id, "/pause"), "")
	if got := <-ran; got.status != 409 || got.code() != "sandbox_state" || !strings.Contains(string(got.body), "paus") {
		t.Errorf("got %s", got)
	}
}

// TestDesktopStartOutlastsPauses pauses the sandbox several times while its
// desktop starts.
func TestDesktopStartOutlastsPauses(t *testing.T) {
	const pauses = 4
	w := newWorld(t)
	w.rt.installCtl(t, fmt.Sprintf(`
echo x >>"$0.starts"
[ $(wc -l <"$0.starts") -gt %d ] || exec sleep 60
echo '{"status":"running"}'`, pauses))
	a := w.replica(sessionapi.Options{})
	id := a.create("")
	started := make(chan answer, 1)
	go func() {
		got, err := a.try(t.Context(), "POST", box(id, "/desktop/start"), "")
		if err != nil {
			t.Error(err)
		}
		started <- got
	}()
	for i := range pauses {
		testutil.Eventually(t, "the ctl starts the desktop", func() bool {
			lines, _ := os.ReadFile(w.rt.ctl + ".starts")
			return len(lines) == 2*(i+1)
		})
		a.want(204, "POST", box(id, "/pause"), "")
	}
	if got := <-started; got.status != 200 || got.json(t)["desktopUrl"] == "" {
		t.Errorf("got %s", got)
	}
}
