package command_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

const patience = testutil.Patience

func TestExitCodes(t *testing.T) {
	m := manager(t)
	for _, c := range []struct {
		command string
		exit    int
		signal  string
	}{
		{"true", 0, ""},
		{"exit 7", 7, ""},
		{"no_such_command_x", 127, ""},
		{"/etc/passwd", 126, ""},
		{"kill -9 $$", 137, "SIGKILL"},
		{"kill -TERM $$", 143, "SIGTERM"},
	} {
		s, _ := run(t, m, poddapi.RunRequest{Command: c.command})
		if exit(s) != c.exit || s.Signal != c.signal || s.Running || s.EndedAt == nil || s.TimedOut {
			t.Errorf("%s: got exit %d, %+v", c.command, exit(s), s)
		}
	}
}

// Every byte that the leader wrote is in the answer, although somebody else
// holds the pipe and never lets go.
func TestEveryByteOfTheLeaderIsThere(t *testing.T) {
	m := manager(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 125 {
				c, _, err := m.Run(poddapi.RunRequest{Command: `sleep 300 & head -c 300000 /dev/zero | tr '\0' a; printf END`})
				if err != nil {
					t.Error(err)
					return
				}
				<-c.Done()
				if n := c.Status().Cursor; n != 300_003 {
					t.Errorf("got %d bytes", n)
				}
				if p, _, err := c.Read(299_999, 100); string(p) != "aEND" || err != nil {
					t.Errorf("got %q, %v", p, err)
				}
				if _, err := c.Kill(); err != nil { // the sleep
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// What a command leaves behind, however it does so, holds up no answer.
func TestNothingHoldsUpTheAnswer(t *testing.T) {
	m := manager(t)
	for command, want := range map[string]string{
		"sleep 300 & echo hi":                                             "hi\n",
		"nohup sh -c 'sleep 300 &' ; echo hi":                             "hi\n",
		"setsid sleep 300 & echo hi":                                      "hi\n",
		"(setsid sh -c 'sleep 300 & sleep 300' &) ; echo hi":              "hi\n",
		"exec 3>&1; sleep 300 >&3 & echo hi":                              "hi\n",
		"perl -e 'use POSIX; fork && exit; setsid; sleep 300'; echo hi":   "hi\n",
		"trap '' HUP TERM; sleep 300 & disown; echo hi":                   "hi\n",
		"read x; echo $?":                                                 "1\n",
		"cat; echo $?":                                                    "0\n",
		"cat <<'EOF'\na 'b' \"c\" $d `e`\nEOF\ncat":                       "a 'b' \"c\" $d `e`\n",
		"exit 7; echo no":                                                 "",
		"printf 'a\\n\\n  b\\r10%%\\r20%%\\n  end'":                       "a\n\n  b\r10%\r20%\n  end",
		"PROMPT_COMMAND='exit 1'; echo ok":                                "ok\n",
		"seq 1 20000 | tail -1; echo END >&2":                             "20000\nEND\n",
		"no_such_command 2>/dev/null; echo $?; no_such_command || echo $": "127\n",
	} {
		c := start(t, m, poddapi.RunRequest{Command: command})
		select {
		case <-c.Done():
		case <-time.After(patience):
			t.Errorf("%s: no end", command)
		}
		if out := all(t, c); !strings.HasPrefix(out, want) || want == "" && out != "" {
			t.Errorf("%s: got %q", command, out)
		}
		c.Kill()
	}
}

// A command that failed to be found says so, not only by its exit code.
func TestNotFoundSaysSo(t *testing.T) {
	m := manager(t)
	for command, want := range map[string]string{"no_such_command_x": "not found", "/etc/passwd": "denied"} {
		if _, out := run(t, m, poddapi.RunRequest{Command: command}); !strings.Contains(out, want) {
			t.Errorf("%s: got %q", command, out)
		}
	}
}

// What is remembered of a finished command is no goroutine and no timer.
func TestFinishedCommandsCostNothing(t *testing.T) {
	m := manager(t)
	run(t, m, poddapi.RunRequest{Command: "true"})
	before := runtime.NumGoroutine()
	for range 300 {
		run(t, m, poddapi.RunRequest{Command: ":", TimeoutMS: time.Hour.Milliseconds()})
	}
	testutil.Eventually(t, "all goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
}

func TestStragglersWriteOn(t *testing.T) {
	m := manager(t)
	gate := filepath.Join(worldDir(t), "gate")
	c := start(t, m, poddapi.RunRequest{Command: `(until test -e ` + gate + `; do sleep 0.01; done; echo late) & echo now`})
	<-c.Done()
	if out := all(t, c); out != "now\n" {
		t.Fatalf("got %q at the leader's end", out)
	}
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	await(t, c, "now\nlate\n")
}

func TestALoudStragglerHoldsUpNobody(t *testing.T) {
	m := manager(t)
	c := start(t, m, poddapi.RunRequest{Command: "yes & echo hi"})
	select {
	case <-c.Done():
	case <-time.After(patience):
		t.Fatal("the command does not finish")
	}
	if _, err := c.Kill(); err != nil {
		t.Error(err)
	}
}

func TestStdin(t *testing.T) {
	m := manager(t)
	for name, c := range map[string]struct {
		stdin *string
		want  string
	}{
		"none":  {nil, "end"},
		"empty": {ptr(""), "end"},
		"short": {ptr("hello "), "hello end"},
		"long":  {ptr(strings.Repeat("x", 1<<20)), strings.Repeat("x", 1<<20) + "end"},
	} {
		if _, out := run(t, m, poddapi.RunRequest{Command: "cat; printf end", Stdin: c.stdin}); out != c.want {
			t.Errorf("%s: got %d bytes, want %d", name, len(out), len(c.want))
		}
	}
	// One that does not read its stdin ends all the same.
	if s, _ := run(t, m, poddapi.RunRequest{Command: "true", Stdin: ptr(strings.Repeat("x", 1<<20))}); exit(s) != 0 {
		t.Errorf("got exit %d", exit(s))
	}
}

func TestInput(t *testing.T) {
	m := manager(t)
	c := start(t, m, poddapi.RunRequest{Command: "while read l; do echo got $l; done; echo over", Stdin: ptr("one\n"), StdinOpen: true, Background: true})
	await(t, c, "got one\n")
	if err := c.Input(t.Context(), strings.NewReader("two\n"), false); err != nil {
		t.Fatal(err)
	}
	await(t, c, "got two\n")
	if err := c.Input(t.Context(), strings.NewReader("three\n"), true); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	if out := all(t, c); out != "got one\ngot two\ngot three\nover\n" {
		t.Errorf("got %q", out)
	}
	if err := c.Input(t.Context(), strings.NewReader("x"), false); code(err) != "stdin_closed" {
		t.Errorf("got %v", err)
	}
	c = start(t, m, poddapi.RunRequest{Command: "sleep 300", Background: true})
	if err := c.Input(t.Context(), strings.NewReader("x"), false); code(err) != "stdin_closed" {
		t.Errorf("/dev/null: got %v", err)
	}
	// A command that does not read keeps its writer waiting no longer than
	// the writer wants.
	c = start(t, m, poddapi.RunRequest{Command: "sleep 300", StdinOpen: true, Background: true})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Input(ctx, strings.NewReader(strings.Repeat("x", 1<<20)), false); err != context.DeadlineExceeded {
		t.Errorf("got %v", err)
	}
}

// A command can open its streams by their names, whoever it runs as.
func TestStreamsByName(t *testing.T) {
	m := manager(t)
	c := start(t, m, poddapi.RunRequest{
		Command: "cat /dev/stdin > /dev/stdout && echo err > /dev/stderr", Stdin: ptr("in "), Separate: true,
	})
	<-c.Done()
	if stdout, stderr, _ := c.Separate(100); string(stdout) != "in " || string(stderr) != "err\n" {
		t.Errorf("got %q, %q", stdout, stderr)
	}
	_, out := run(t, m, poddapi.RunRequest{Command: "echo one > /dev/stdout; echo two > /dev/tty; echo three > /dev/stderr", PTY: &poddapi.Size{}})
	if out != "one\r\ntwo\r\nthree\r\n" {
		t.Errorf("got %q", out)
	}
}

func TestSeparate(t *testing.T) {
	m := manager(t)
	c := start(t, m, poddapi.RunRequest{Command: "echo out; echo err >&2", Separate: true})
	<-c.Done()
	stdout, stderr, ok := c.Separate(100)
	if !ok || string(stdout) != "out\n" || string(stderr) != "err\n" || len(all(t, c)) != 8 {
		t.Errorf("got %q, %q, %v, %q", stdout, stderr, ok, all(t, c))
	}
}

func TestTerminal(t *testing.T) {
	m := manager(t)
	_, out := run(t, m, poddapi.RunRequest{Command: "test -t 0 && stty size; printf x", PTY: &poddapi.Size{Cols: 100, Rows: 40}})
	if out != "40 100\r\nx" {
		t.Errorf("got %q", out)
	}
	c := start(t, m, poddapi.RunRequest{Command: "trap 'stty size; exit 3' WINCH; echo ready; while :; do sleep 0.01; done", PTY: &poddapi.Size{}, Background: true})
	await(t, c, "ready")
	if err := c.Resize(poddapi.Size{Cols: 132, Rows: 50}); err != nil {
		t.Fatal(err)
	}
	await(t, c, "50 132")
	if _, out := run(t, m, poddapi.RunRequest{Command: "stty size", PTY: &poddapi.Size{}}); out != "24 80\r\n" {
		t.Errorf("by default: got %q", out)
	}
	// A terminal's end of input is a character.
	c = start(t, m, poddapi.RunRequest{Command: "cat; echo over", PTY: &poddapi.Size{}, Background: true})
	if err := c.Input(t.Context(), strings.NewReader("hello\n"), true); err != nil {
		t.Fatal(err)
	}
	await(t, c, "over")
	c = start(t, m, poddapi.RunRequest{Command: "sleep 300", Background: true})
	if err := c.Resize(poddapi.Size{Cols: 1, Rows: 1}); code(err) != "no_terminal" {
		t.Errorf("got %v", err)
	}
}

func TestLongScript(t *testing.T) {
	m := manager(t)
	script := "echo $0 begins\n#" + strings.Repeat("x", 300_000) + "\ncat; exit 5"
	s, out := run(t, m, poddapi.RunRequest{Command: script, Stdin: ptr("stdin")})
	if exit(s) != 5 || !strings.HasSuffix(out, "begins\nstdin") || strings.Contains(out, "/proc") {
		t.Errorf("got exit %d, %q", exit(s), out)
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("PODDS_OWN", "secret")
	m := manager(t)
	_, out := run(t, m, poddapi.RunRequest{Command: "env", Envs: map[string]string{"FOO": "b a'r", "LANG": "C"}})
	vars := map[string]string{}
	for line := range strings.SplitSeq(out, "\n") {
		k, v, _ := strings.Cut(line, "=")
		vars[k] = v
	}
	if vars["FOO"] != "b a'r" || vars["LANG"] != "C" || vars["PATH"] == "" || vars["HOME"] == "" {
		t.Errorf("got %v", vars)
	}
	if _, ok := vars["PODDS_OWN"]; ok {
		t.Error("podd's own environment is seen")
	}
}

func TestRefused(t *testing.T) {
	m := manager(t)
	for name, c := range map[string]struct {
		r    poddapi.RunRequest
		code string
	}{
		"no command":       {poddapi.RunRequest{}, "invalid_command"},
		"NUL":              {poddapi.RunRequest{Command: "a\x00b"}, "invalid_command"},
		"missing workdir":  {poddapi.RunRequest{Command: "true", Workdir: "/no/such"}, "workdir_invalid"},
		"workdir a file":   {poddapi.RunRequest{Command: "true", Workdir: "/etc/passwd"}, "workdir_invalid"},
		"variable name":    {poddapi.RunRequest{Command: "true", Envs: map[string]string{"A=B": ""}}, "invalid_envs"},
		"negative timeout": {poddapi.RunRequest{Command: "true", TimeoutMS: -1}, "invalid_timeout"},
		"user and uid":     {poddapi.RunRequest{Command: "true", User: "root", UID: ptr(uint32(0))}, "invalid_user"},
		"unknown user":     {poddapi.RunRequest{Command: "true", User: "no such"}, "invalid_user"},
		"no uid":           {poddapi.RunRequest{Command: "true", UID: ptr(^uint32(0))}, "invalid_user"},
		"huge environment": {poddapi.RunRequest{Command: "true", Envs: map[string]string{"A": strings.Repeat("x", 200_000)}}, "too_large"},
	} {
		if _, _, err := m.Run(c.r); code(err) != c.code {
			t.Errorf("%s: got %v, want %s", name, err, c.code)
		}
	}
	if m.Active() != 0 {
		t.Errorf("%d are active", m.Active())
	}
}

func TestUsers(t *testing.T) {
	testutil.NeedRoot(t)
	m := manager(t)
	closed := t.TempDir() // 0700 and root's
	os.Chmod(closed, 0o700)
	for name, c := range map[string]struct {
		r    poddapi.RunRequest
		want string
	}{
		"default":       {poddapi.RunRequest{}, "1000:1000"},
		"unknown uid":   {poddapi.RunRequest{UID: ptr(uint32(54321))}, "54321:54321"},
		"both":          {poddapi.RunRequest{UID: ptr(uint32(54321)), GID: ptr(uint32(7))}, "54321:7"},
		"known uid":     {poddapi.RunRequest{UID: ptr(uint32(2))}, "2:2"},
		"root":          {poddapi.RunRequest{UID: ptr(uint32(0)), Workdir: closed}, "0:0"},
		"name":          {poddapi.RunRequest{User: "root"}, "0:0"},
		"gid alone":     {poddapi.RunRequest{GID: ptr(uint32(7))}, "1000:7"},
		"no root group": {poddapi.RunRequest{UID: ptr(uint32(54321))}, "54321:54321"},
	} {
		c.r.Command = "echo $(id -u):$(id -g); id -G"
		s, out := run(t, m, c.r)
		who, groups, _ := strings.Cut(strings.TrimSpace(out), "\n")
		if who != c.want || fmt.Sprintf("%d:%d", s.UID, s.GID) != c.want {
			t.Errorf("%s: got %q and %d:%d, want %s", name, who, s.UID, s.GID, c.want)
		}
		if s.UID != 0 && strings.Contains(" "+groups+" ", " 0 ") {
			t.Errorf("%s: in groups %s", name, groups)
		}
	}
	if _, _, err := m.Run(poddapi.RunRequest{Command: "true", Workdir: closed}); code(err) != "workdir_invalid" {
		t.Errorf("another's directory: got %v", err)
	}
}

func TestIdempotencyKey(t *testing.T) {
	m := manager(t)
	file := filepath.Join(worldDir(t), "count")
	r := poddapi.RunRequest{Command: "echo x >> " + file, IdempotencyKey: "k"}
	ids := make([]string, 8)
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			c, _, err := m.Run(r)
			if err != nil {
				t.Error(err)
				return
			}
			<-c.Done()
			ids[i] = c.ID()
		})
	}
	all.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("got ids %v", ids)
		}
	}
	if data, err := os.ReadFile(file); string(data) != "x\n" {
		t.Errorf("got %q, %v", data, err)
	}
	r.Command = "true"
	if _, _, err := m.Run(r); code(err) != "idempotency_mismatch" {
		t.Errorf("got %v", err)
	}
}

func TestHold(t *testing.T) {
	m := manager(t)
	m.Hold()
	m.Hold()
	if _, _, err := m.Run(poddapi.RunRequest{Command: "true"}); code(err) != "stopping" {
		t.Errorf("got %v", err)
	}
	m.Release()
	run(t, m, poddapi.RunRequest{Command: "true"})
}
