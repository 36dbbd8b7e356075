package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubeplexai/cubepod/desktopctl/daemon"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// start runs a shell command as a daemon that t ends.
func start(t *testing.T, dir daemon.Dir, name, script string) *daemon.Process {
	t.Helper()
	p, err := dir.Start(daemon.Spec{
		Name: name, Log: name, Dir: "/", OpenFiles: 64,
		Args: []string{"/bin/sh", "-c", script},
		Env:  []string{"PATH=" + os.Getenv("PATH")},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(patient(t)); err != nil {
			t.Error(err)
		}
	})
	return p
}

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testutil.Patience)
	t.Cleanup(cancel)
	return ctx
}

func TestStart(t *testing.T) {
	dir := daemon.Dir(t.TempDir())
	secret, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	p := start(t, dir, "a", `ls -l /proc/$$/fd; ulimit -n; echo to stderr >&2; echo end; exec sleep 600`)
	if sid, err := unix.Getsid(p.Pid); err != nil || sid != p.Pid {
		t.Errorf("session %d, %v, want %d", sid, err, p.Pid)
	}
	var log string
	testutil.Eventually(t, "the daemon's output", func() bool {
		b, _ := os.ReadFile(dir.LogPath("a"))
		log = string(b)
		return strings.HasSuffix(log, "end\n")
	})
	if !strings.Contains(log, "to stderr") || !strings.Contains(log, "\n64\n") || strings.Contains(log, secret.Name()) {
		t.Errorf("log: %s", log)
	}
}

func TestFind(t *testing.T) {
	dir := daemon.Dir(t.TempDir())
	p := start(t, dir, "a", "exec sleep 600")
	found := dir.Find("a", "b")
	if len(found) != 1 || found["a"].Pid != p.Pid {
		t.Errorf("found %v", found)
	}
	if err := dir.Forget("a"); err != nil {
		t.Fatal(err)
	}
	if found = dir.Find("a"); found["a"] == nil || found["a"].Pid != p.Pid {
		t.Errorf("without its pid file: found %v", found)
	}
	if found = daemon.Dir(t.TempDir()).Find("a"); len(found) != 0 {
		t.Errorf("in another directory: found %v", found)
	}
}

func TestFindIsNotFooled(t *testing.T) {
	zombie := exec.Command("true")
	if err := zombie.Start(); err != nil {
		t.Fatal(err)
	}
	defer zombie.Wait()
	testutil.Eventually(t, "a zombie", func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", zombie.Process.Pid))
		return strings.Contains(string(b), ") Z ")
	})
	for name, content := range map[string]string{
		"a reused pid": fmt.Sprintf("%d\n1\n", os.Getpid()),
		"init":         "1\n0\n",
		"a zombie":     fmt.Sprintf("%d\n%s\n", zombie.Process.Pid, startTime(t, zombie.Process.Pid)),
		"a dead pid":   "2147483000\n5\n",
		"negative":     "-1\n5\n",
		"nonsense":     "nonsense",
		"empty":        "",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a.pid"), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if found := daemon.Dir(dir).Find("a"); len(found) != 0 {
			t.Errorf("%s: found pid %d", name, found["a"].Pid)
		}
	}
}

func startTime(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(b))[21]
}

func TestEnd(t *testing.T) {
	tests := []struct {
		name, script string
		grace        time.Duration
	}{
		{"willing", `trap 'echo bye; exit' TERM; echo up; while :; do sleep 0.01; done`, testutil.Patience},
		{"unwilling", `trap '' TERM; echo up; while :; do sleep 0.01; done`, 50 * time.Millisecond},
		{"with children", `sleep 600 & echo up; wait`, testutil.Patience},
		{"stopped", `echo up; kill -STOP $$`, 50 * time.Millisecond},
		{"leader gone", `sleep 600 & echo up`, testutil.Patience},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := daemon.Dir(t.TempDir())
			p := start(t, dir, "a", tt.script)
			testutil.Eventually(t, "the daemon's start", func() bool {
				b, _ := os.ReadFile(dir.LogPath("a"))
				return strings.HasPrefix(string(b), "up")
			})
			grace := tt.grace
			if tt.name == "with children" || tt.name == "leader gone" {
				grace = 50 * time.Millisecond // a shell leaves its children behind
			}
			if err := p.End(patient(t), grace); err != nil {
				t.Fatal(err)
			}
			if p.Alive() || len(session(p.Pid)) != 0 {
				t.Errorf("left: %v", session(p.Pid))
			}
			b, _ := os.ReadFile(dir.LogPath("a"))
			if tt.name == "willing" && !strings.HasSuffix(string(b), "bye\n") {
				t.Errorf("killed before it could end: %s", b)
			}
		})
	}
}

// session lists the living members of a session.
func session(sid int) []string {
	var members []string
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		b, _ := os.ReadFile(path)
		_, rest, _ := strings.Cut(string(b), ") ")
		if f := strings.Fields(rest); len(f) > 3 && f[3] == strconv.Itoa(sid) && f[0] != "Z" {
			members = append(members, path)
		}
	}
	return members
}

func TestAwait(t *testing.T) {
	dir := daemon.Dir(t.TempDir())
	never := func(context.Context) error { return errors.New("not yet") }

	if err := start(t, dir, "a", "exit 3").Await(patient(t), never); !errors.Is(err, daemon.ErrExited) {
		t.Errorf("a daemon that ends: %v, want ErrExited", err)
	}
	p := start(t, dir, "b", "exec sleep 600")
	calls := 0
	if err := p.Await(patient(t), func(context.Context) error {
		if calls++; calls < 3 {
			return errors.New("not yet")
		}
		return nil
	}); err != nil || calls != 3 {
		t.Errorf("%d calls, %v", calls, err)
	}
	fatal := errors.New("fatal")
	if err := p.Await(patient(t), func(context.Context) error { return daemon.Final(fatal) }); err != fatal {
		t.Errorf("a final error: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if err := p.Await(short, never); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not yet") {
		t.Errorf("out of time: %v", err)
	}
}

func TestListens(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr := netip.MustParseAddrPort(l.Addr().String())
	dir := daemon.Dir(t.TempDir())
	other := start(t, dir, "a", "exec sleep 600")
	var foreign *daemon.ListenerError
	if ok, err := other.Listens(addr); ok || !errors.As(err, &foreign) || foreign.Pid != os.Getpid() {
		t.Errorf("another's port: %v, %v", ok, err)
	}
	if err := daemon.Vacant(addr); !errors.As(err, &foreign) || foreign.Pid != os.Getpid() || foreign.Addr != addr {
		t.Errorf("a port that is taken is vacant: %v", err)
	}
	self := daemon.Process{Pid: os.Getpid()}
	if ok, err := self.Listens(addr); !ok || err != nil {
		t.Errorf("own port: %v, %v", ok, err)
	}
	l.Close()
	if ok, err := self.Listens(addr); ok || err != nil {
		t.Errorf("nobody's port: %v, %v", ok, err)
	}
	if err := daemon.Vacant(addr); err != nil {
		t.Errorf("nobody's port is not vacant: %v", err)
	}
}

func TestRunning(t *testing.T) {
	p := start(t, daemon.Dir(t.TempDir()), "a", "exec sleep 600")
	testutil.Eventually(t, "the shell became sleep", func() bool { return daemon.Running(p.Pid, "sleep") != nil })
	if daemon.Running(p.Pid, "ttyd") != nil {
		t.Error("another program has the name")
	}
	found := daemon.Running(p.Pid, "sleep")
	if err := p.Kill(patient(t)); err != nil {
		t.Fatal(err)
	}
	if found.Alive() || daemon.Running(p.Pid, "sleep") != nil {
		t.Error("a dead process runs")
	}
}
