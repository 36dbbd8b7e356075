package main_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// Whatever podd ends with by itself is podd-init's own end.
func TestPoddsOwnEnd(t *testing.T) {
	init := filepath.Join(bin, "podd-init")
	if out, err := exec.Command(init, "--version").Output(); err != nil || len(out) == 0 {
		t.Errorf("got %q, %v", out, err)
	}
	out, err := exec.Command(init, "--nope").CombinedOutput()
	if e, ok := err.(*exec.ExitError); !ok || e.ExitCode() != 1 || strings.Count(string(out), "not defined: -nope\n") > 2 || strings.Contains(string(out), "again") {
		t.Errorf("got %v\n%s", err, out)
	}
}

func TestReady(t *testing.T) {
	g := start(t, t.TempDir(), nil)
	if h, err := g.Health(t.Context()); err != nil || h.InitState != "ready" {
		t.Errorf("got %+v, %v", h, err)
	}
	if r := g.run(t, "tr '\\0' ' ' < /proc/1/cmdline; stat -c '%a %u' /run/cubepod /run/cubepod/desktop"); !strings.HasPrefix(r.Output, bin+"/podd-init ") || !strings.HasSuffix(r.Output, "755 0\n700 1000\n") {
		t.Errorf("got %s", r.Output)
	}
}

func TestSignalsReachPodd(t *testing.T) {
	for sig, want := range map[syscall.Signal]int{
		syscall.SIGTERM: 0, syscall.SIGINT: 0, syscall.SIGHUP: 0, // podd ends cleanly
		syscall.SIGQUIT: 2, // the Go runtime's own end, with a trace
	} {
		g := start(t, t.TempDir(), nil)
		g.cmd.Process.Signal(syscall.SIGUSR1)        // podd knows nothing of it
		g.run(t, "exec sleep 300 >/dev/null 2>&1 &") // is no reason to stay
		if got := g.end(sig); got != want {
			t.Errorf("%v: got %d, want %d\n%s", sig, got, want, g.log)
		}
	}
}

// What outlives podd may end by itself.
func TestFarewell(t *testing.T) {
	dir := t.TempDir()
	g := start(t, dir, nil)
	said := filepath.Join(dir, "said")
	g.run(t, fmt.Sprintf(`setsid env -i bash -c 'trap "echo bye > %s; exit" TERM; echo > %[1]s; while :; do sleep 0.01; done' >/dev/null 2>&1 &
		until test -e %[1]s; do sleep 0.01; done`, said))
	if got := g.end(syscall.SIGTERM); got != 0 {
		t.Errorf("got %d\n%s", got, g.log)
	}
	if data, err := exec.Command("cat", said).Output(); string(data) != "bye\n" {
		t.Errorf("got %q, %v", data, err)
	}
}

func podd(t *testing.T, g *guest) string {
	return strings.TrimSpace(g.run(t, "echo $PPID").Output)
}

func TestACrashedPoddIsStartedAgain(t *testing.T) {
	g := start(t, t.TempDir(), nil)
	kept := g.run(t, "echo kept; exit 3")
	// Left behind by a finished command, and running.
	left := strings.TrimSpace(g.run(t, "setsid sleep 300 >/dev/null 2>&1 & echo $!").Output)
	bg, err := g.Run(t.Context(), poddapi.RunRequest{Command: "setsid sleep 300; true", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	go g.Run(t.Context(), poddapi.RunRequest{Command: "exec sleep 301"}) // its answer never comes
	testutil.Eventually(t, "all run", func() bool { return g.run(t, "pgrep -c -x sleep").Output == "3\n" })

	old := podd(t, g)
	g.run(t, "kill -9 "+left+" 2>/dev/null; setsid sleep 302 >/dev/null 2>&1 &")
	if _, err := g.Run(t.Context(), poddapi.RunRequest{Command: "kill -9 $PPID", UID: new(uint32)}); err == nil {
		t.Error("podd lives")
	}
	g.up(t)
	if now := podd(t, g); now == old {
		t.Errorf("podd is %s still", now)
	}
	var logs poddapi.Logs
	get(t, g, "/v1/commands/"+kept.ID+"/logs", &logs)
	if logs.Content != "kept\n" || *logs.ExitCode != 3 {
		t.Errorf("got %+v", logs)
	}
	get(t, g, "/v1/commands/"+bg.ID+"/logs", &logs)
	if logs.Running || logs.ExitCode != nil {
		t.Errorf("nobody knows how it ended, and podd says %+v", logs)
	}
	if n := number(t, g.run(t, "true").ID); n <= number(t, bg.ID) {
		t.Errorf("id %d is given again", n)
	}
	// Only what the finished command left is there.
	if out := g.run(t, "pgrep -a -x sleep").Output; strings.Count(out, "\n") != 1 || !strings.Contains(out, "sleep 302") {
		t.Errorf("got %s", out)
	}
	noZombies(t, g)
	if got := g.end(syscall.SIGTERM); got != 0 {
		t.Errorf("got %d\n%s", got, g.log)
	}
}

func TestRestartsAreBounded(t *testing.T) {
	g := start(t, t.TempDir(), nil)
	for range 6 {
		testutil.Eventually(t, "podd is up, and killed", func() bool {
			if _, err := g.Health(t.Context()); err != nil {
				return false
			}
			_, err := g.Run(t.Context(), poddapi.RunRequest{Command: "kill -9 $PPID", UID: new(uint32)})
			return err != nil
		})
	}
	if err := g.cmd.Wait(); g.cmd.ProcessState.ExitCode() != 137 || strings.Count(g.log.String(), "again") != 5 {
		t.Errorf("got %v\n%s", err, g.log)
	}
}

// Orphans that are nobody's: those of a podd that is gone, and of programs
// that somebody else started in the container.
func TestOrphansAreReaped(t *testing.T) {
	g := start(t, t.TempDir(), nil)
	g.run(t, "for i in $(seq 50); do (setsid sleep 0.2 &) ; done >/dev/null 2>&1")
	g.Run(t.Context(), poddapi.RunRequest{Command: "kill -9 $PPID", UID: new(uint32)}) // has no answer
	g.up(t)
	testutil.Eventually(t, "all have ended", func() bool { return g.run(t, "pgrep -c -x sleep").Output == "0\n" })
	noZombies(t, g)
}

func noZombies(t *testing.T, g *guest) {
	t.Helper()
	testutil.Eventually(t, "no zombies are left", func() bool {
		return g.run(t, "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z 1 '").Output == "0\n"
	})
}

func number(t *testing.T, id string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimPrefix(id, "proc-"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
