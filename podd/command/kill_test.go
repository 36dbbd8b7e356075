package command_test

import (
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/podd/cgroup"
	"github.com/cubeplexai/cubepod/podd/command"
	"github.com/cubeplexai/cubepod/podd/procfs"
)

// pids reads the numbers that a command's processes have put into dir, once
// there are n.
func pids(t *testing.T, dir string, n int) []int {
	t.Helper()
	var got []int
	testutil.Eventually(t, "the processes say who they are", func() bool {
		got = nil
		names, _ := filepath.Glob(dir + "/*")
		for _, name := range names {
			data, _ := os.ReadFile(name)
			if pid, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil {
				got = append(got, pid)
			}
		}
		return len(got) == n
	})
	return got
}

func alive(pids []int) (left []int) {
	for _, pid := range pids {
		if p, err := procfs.Read(pid); err == nil && !p.Zombie() {
			left = append(left, pid)
		}
	}
	return left
}

// worldDir is a directory that any user may enter and write to; t.TempDir's
// parent belongs to one.
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

// The processes of a command, each of which writes its number to a file of
// DIR and stays.
const tree = `
stay() { echo $BASHPID > DIR/$1; exec sleep 300; }
(stay child) &
(exec setsid bash -c 'echo $$ > DIR/session; exec sleep 300') &
((exec setsid env -i bash -c 'echo $$ > DIR/unmarked; exec sleep 300') & wait) &
(exec > /dev/null 2>&1; stay quiet) &
`

// modes are a manager with control groups, where this machine has them, and
// one without.
func modes(t *testing.T, f func(t *testing.T, m *command.Manager, groups bool)) {
	for _, groups := range []bool{true, false} {
		t.Run(fmt.Sprintf("groups=%v", groups), func(t *testing.T) {
			if groups {
				needGroups(t)
			}
			m, err := command.Open(command.Options{StateDir: t.TempDir(), Workdir: "/", NoGroups: !groups, Log: log.New(io.Discard, "", 0)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := m.Close(); err != nil {
					t.Error(err)
				}
			})
			f(t, m, groups)
		})
	}
}

func needGroups(t *testing.T) {
	t.Helper()
	tree, err := cgroup.Open(fmt.Sprintf("podd-test-%d", os.Getpid()))
	if err != nil {
		testutil.Skip(t, "no control groups: "+err.Error())
	}
	tree.Close()
}

func TestKill(t *testing.T) {
	modes(t, func(t *testing.T, m *command.Manager, groups bool) {
		for name, c := range map[string]struct {
			command string
			n       int
			running bool
		}{
			"running":  {tree + "stay leader", 5, true},
			"finished": {strings.ReplaceAll(tree, "env -i", "env"), 4, false},
		} {
			dir := worldDir(t)
			cmd := start(t, m, poddapi.RunRequest{Command: strings.ReplaceAll(c.command, "DIR", dir), Background: true})
			members := pids(t, dir, c.n)
			if !c.running {
				<-cmd.Done()
			}
			wasRunning, err := cmd.Kill()
			if err != nil || wasRunning != c.running {
				t.Errorf("%s: was running %v, %v", name, wasRunning, err)
			}
			if left := alive(members); len(left) > 0 {
				t.Errorf("%s: %v of %v live", name, left, members)
			}
			s := cmd.Status()
			want := 0
			if c.running {
				want = 137
			}
			if s.Running || exit(s) != want {
				t.Errorf("%s: got %+v", name, s)
			}
			if wasRunning, err := cmd.Kill(); wasRunning || err != nil {
				t.Errorf("%s, again: %v, %v", name, wasRunning, err)
			}
		}
	})
}

// The desktop's daemons outlive the command that started them, and its kill,
// by their marker; without groups anything in their manner does.
func TestKillSparesOthers(t *testing.T) {
	modes(t, func(t *testing.T, m *command.Manager, groups bool) {
		dir := worldDir(t)
		other := start(t, m, poddapi.RunRequest{Command: fmt.Sprintf("echo $$ > %s/other; exec sleep 300", dir), Background: true})
		daemon := "(setsid env -i %s bash -c 'echo $$ > " + dir + "/%s; sleep 300; true' > /dev/null 2>&1 &)\n"
		c := start(t, m, poddapi.RunRequest{Command: fmt.Sprintf(daemon, "CUBEPOD_DAEMON=x.pid", "daemon") + fmt.Sprintf(daemon, "", "stray")})
		<-c.Done()
		members := pids(t, dir, 3)
		defer func() {
			for _, pid := range members {
				syscall.Kill(-pid, syscall.SIGKILL)
			}
		}()
		if _, err := c.Kill(); err != nil {
			t.Fatal(err)
		}
		want := 3
		if groups {
			want = 2
		}
		if left := alive(members); len(left) != want || !other.Running() {
			t.Errorf("%v of %v live", left, members)
		}
	})
}

// Nothing outruns the kill of a control group.
func TestKillOfAForkBomb(t *testing.T) {
	needGroups(t)
	m := manager(t)
	dir := worldDir(t)
	nap := fmt.Sprintf("300.%d", time.Now().UnixNano())
	const bomb = `f() { while :; do (setsid env -i bash -c 'sleep NAP & sleep NAP & sleep 0.05' &) ; done; }; f & f & echo $$ > DIR/leader; wait`
	c := start(t, m, poddapi.RunRequest{
		Command: "ulimit -u 2000; " + strings.NewReplacer("DIR", dir, "NAP", nap).Replace(bomb), Background: true,
	})
	pids(t, dir, 1)
	if wasRunning, err := c.Kill(); !wasRunning || err != nil {
		t.Errorf("got %v, %v", wasRunning, err)
	}
	if _, out := run(t, m, poddapi.RunRequest{Command: "pgrep -c -f '^sleep " + nap + "'"}); out != "0\n" {
		t.Errorf("after the kill there are %s", out)
	}
}

func TestTimeout(t *testing.T) {
	m := manager(t)
	dir := worldDir(t)
	c := start(t, m, poddapi.RunRequest{
		Command: strings.ReplaceAll("echo part"+tree+"stay leader", "DIR", dir), TimeoutMS: 1500,
	})
	members := pids(t, dir, 5)
	<-c.Done()
	if s := c.Status(); !s.TimedOut || exit(s) != 137 || all(t, c) != "part\n" {
		t.Errorf("got %+v, %q", s, all(t, c))
	}
	if left := alive(members); len(left) > 0 {
		t.Errorf("%v of %v live", left, members)
	}
	s, _ := run(t, m, poddapi.RunRequest{Command: "true", TimeoutMS: 60_000})
	if s.TimedOut {
		t.Error("one that ended in time is timed out")
	}
}

func TestSignal(t *testing.T) {
	m := manager(t)
	c := start(t, m, poddapi.RunRequest{Command: "trap 'echo caught; exit 4' USR1; echo ready; while :; do sleep 0.01; done", Background: true})
	await(t, c, "ready")
	if err := c.Signal("NOPE"); code(err) != "invalid_signal" {
		t.Errorf("got %v", err)
	}
	if err := c.Signal("usr1"); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	if s := c.Status(); exit(s) != 4 || !strings.HasSuffix(all(t, c), "caught\n") {
		t.Errorf("got %+v, %q", s, all(t, c))
	}
	if err := c.Signal("SIGTERM"); code(err) != "not_running" {
		t.Errorf("got %v", err)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	m := open(t, t.TempDir())
	dir := worldDir(t)
	gentle := start(t, m, poddapi.RunRequest{Command: "trap 'exit 9' TERM; echo $$ > " + dir + "/gentle; while :; do sleep 0.01; done", Background: true})
	deaf := start(t, m, poddapi.RunRequest{Command: "trap '' TERM; echo $$ > " + dir + "/deaf; while :; do sleep 0.01; done", Background: true})
	members := pids(t, dir, 2)
	began := time.Now()
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if exit(gentle.Status()) != 9 || exit(deaf.Status()) != 137 || len(alive(members)) > 0 {
		t.Errorf("after %v: %+v, %+v, %v live", time.Since(began), gentle.Status(), deaf.Status(), alive(members))
	}
}
