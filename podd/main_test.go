package main_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/podd/procfs"
	"go.uber.org/goleak"
)

var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "podd-bin-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "podd")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// podd is a running podd.
type podd struct {
	*poddapi.Client
	cmd *exec.Cmd
	log *bytes.Buffer
	rt  *http.Transport
}

const token = "the-full-token"

// start runs podd with its files in dir.
func start(t *testing.T, dir string) *podd { return startIn(t, dir, nil) }

// startIn is start by way of another command, in other namespaces.
func startIn(t *testing.T, dir string, attr *syscall.SysProcAttr, wrapper ...string) *podd {
	t.Helper()
	tokens, socket := filepath.Join(dir, "token"), filepath.Join(dir, "podd.sock")
	if err := os.WriteFile(tokens, []byte(token+"\ntunnel\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append(wrapper, binary, "--addr", "unix:"+socket, "--workdir", "/", "--state-dir", filepath.Join(dir, "state"))
	p := &podd{cmd: exec.Command(args[0], args[1:]...), log: new(bytes.Buffer)}
	p.cmd.Env = append(os.Environ(), "CUBEPOD_TOKEN_FILE="+tokens)
	p.cmd.Stderr = p.log
	p.cmd.SysProcAttr = attr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.rt = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	p.Client = poddapi.NewClient(p.rt, token)
	t.Cleanup(func() { p.stop(t) })
	testutil.Eventually(t, "podd is up", func() bool { _, err := p.Health(t.Context()); return err == nil })
	return p
}

// stop ends podd as its runtime does.
func (p *podd) stop(t *testing.T) {
	t.Helper()
	if p.cmd.ProcessState != nil {
		return
	}
	p.rt.CloseIdleConnections()
	p.cmd.Process.Signal(syscall.SIGTERM)
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("podd: %v\n%s", err, p.log)
	}
}

func (p *podd) run(t *testing.T, command string) poddapi.RunResponse {
	t.Helper()
	r, err := p.Run(t.Context(), poddapi.RunRequest{Command: command})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestHelpAndVersion(t *testing.T) {
	out, err := exec.Command(binary, "--help").CombinedOutput()
	if err != nil {
		t.Error(err)
	}
	for _, want := range []string{"--addr", "CUBEPOD_ADDR", poddapi.Addr, "--token-file", "CUBEPOD_TOKEN_FILE", "--workdir", "CUBEPOD_WORKDIR", poddapi.Workdir, "--state-dir", "CUBEPOD_STATE_DIR", "/var/lib/podd", "--version"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if out, err := exec.Command(binary, "--version").Output(); err != nil || strings.TrimSpace(string(out)) == "" {
		t.Errorf("version: got %q, %v", out, err)
	}
	for _, args := range [][]string{{"--nope"}, {"--addr", "nowhere"}, {"--addr", "unix:"}, {"--workdir", "relative"}, {"argument"}} {
		err := exec.Command(binary, args...).Run()
		if e, ok := err.(*exec.ExitError); !ok || e.ExitCode() != 1 {
			t.Errorf("%v: got %v", args, err)
		}
	}
	if out, err := exec.Command(binary, "--token-file", "/no/such").CombinedOutput(); err == nil || !strings.HasPrefix(string(out), "[podd] ") {
		t.Errorf("no token file: got %s, %v", out, err)
	}
}

func TestTheTokenIsNowhereToBeSeen(t *testing.T) {
	p := start(t, t.TempDir())
	environ, err := procfs.Environ(p.cmd.Process.Pid)
	if err != nil || bytes.Contains(environ, []byte(token)) {
		t.Errorf("podd's environment has it, or %v", err)
	}
	if r := p.run(t, "env; cat /proc/$PPID/environ /proc/$PPID/cmdline | tr '\\0' '\\n'"); strings.Contains(r.Output, token) || strings.Contains(r.Output, "CUBEPOD_TOKEN_FILE") {
		t.Errorf("a command sees\n%s", r.Output)
	}
}

func TestCommandsOutlivePodd(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	r := p.run(t, "echo kept; exit 3")
	bg, err := p.Run(t.Context(), poddapi.RunRequest{Command: "trap 'echo bye; exit 5' TERM; echo begun; while :; do sleep 0.01; done", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the command has begun", func() bool { return p.run(t, "kill -0 "+fmt.Sprint(bg.PID)).ExitCode != nil })
	p.stop(t)
	p = start(t, dir)
	logs := func(id string) poddapi.Logs {
		var l poddapi.Logs
		p.get(t, "/v1/commands/"+id+"/logs", &l)
		return l
	}
	if l := logs(r.ID); l.Content != "kept\n" || *l.ExitCode != 3 {
		t.Errorf("got %+v", l)
	}
	if l := logs(bg.ID); l.Running || l.ExitCode == nil {
		t.Errorf("got %+v", l)
	}
	if again := p.run(t, "true"); again.ID == r.ID || again.ID == bg.ID {
		t.Errorf("id %s is given again", again.ID)
	}
}

// Orphans are reaped, and no command's exit code is lost to that.
func testReaping(t *testing.T, p *podd, commands int) {
	stop := make(chan struct{})
	var orphans, all sync.WaitGroup
	orphans.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				p.run(t, "for i in 1 2 3 4 5 6 7 8; do (setsid true &) ; (true &) ; done")
			}
		}
	})
	for range 4 {
		all.Go(func() {
			for i := range commands / 4 {
				want := i % 256
				if r := p.run(t, "exit "+strconv.Itoa(want)); r.ExitCode == nil || *r.ExitCode != want {
					t.Errorf("exit %d: got %+v", want, r.Status)
				}
			}
		})
	}
	all.Wait()
	close(stop)
	orphans.Wait()
	testutil.Eventually(t, "no zombies are left", func() bool {
		return strings.TrimSpace(p.run(t, "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '$PPID' '").Output) == "0"
	})
}

func TestOrphansAreReaped(t *testing.T) { testReaping(t, start(t, t.TempDir()), 200) }

// startPID1 starts podd as process 1 of a PID namespace.
func startPID1(t *testing.T) *podd {
	t.Helper()
	testutil.NeedRoot(t)
	p := startIn(t, t.TempDir(), &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS},
		"/bin/sh", "-c", `mount --make-rprivate / && mount -t proc proc /proc && exec "$0" "$@"`)
	if r := p.run(t, "echo $PPID"); r.Output != "1\n" {
		t.Fatalf("podd is process %s", r.Output)
	}
	return p
}

func TestOrphansAreReapedAsPID1(t *testing.T) { testReaping(t, startPID1(t), 2000) }

// A number that the kernel has given to another process is never signalled.
func TestARecycledNumberIsSpared(t *testing.T) {
	p := startPID1(t)
	root := uint32(0)
	run := func(command string) poddapi.RunResponse {
		t.Helper()
		r, err := p.Run(t.Context(), poddapi.RunRequest{Command: command, UID: &root})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	old := run("true")
	// The next process gets the number after the one that is written.
	var stranger poddapi.RunResponse
	testutil.Eventually(t, "the number is given again", func() bool {
		if stranger.ID != "" {
			p.post(t, "/v1/commands/"+stranger.ID+"/kill")
		}
		var err error
		stranger, err = p.Run(t.Context(), poddapi.RunRequest{Command: fmt.Sprintf(
			"echo %d > /proc/sys/kernel/ns_last_pid; setsid sleep 300 & echo $! ; wait", old.PID-1), UID: &root, Background: true})
		if err != nil {
			t.Fatal(err)
		}
		var l poddapi.Logs
		p.get(t, "/v1/commands/"+stranger.ID+"/logs?wait_ms=10000", &l)
		return l.Content == fmt.Sprintln(old.PID)
	})
	var killed poddapi.KillExited
	p.call(t, "POST", "/v1/commands/"+old.ID+"/kill", &killed)
	if killed.Word != "exited" || killed.PID != old.PID {
		t.Errorf("got %+v", killed)
	}
	if r := run(fmt.Sprintf("kill -0 %d", old.PID)); *r.ExitCode != 0 {
		t.Errorf("the stranger is gone: %q", r.Output)
	}
}

// As in most containers, root may not look into other users' processes.
func TestKillWithoutPtrace(t *testing.T) {
	testutil.NeedRoot(t)
	p := startIn(t, t.TempDir(), nil, testutil.NeedProgram(t, "setpriv"), "--bounding-set=-sys_ptrace,-perfmon,-sys_admin")
	marker := fmt.Sprintf("3%d.5", time.Now().UnixNano()%1e9)
	r := p.run(t, "(setsid sleep "+marker+" >/dev/null 2>&1 &); echo started")
	find := "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c '^" + marker + "$'"
	testutil.Eventually(t, "the child runs", func() bool { return p.run(t, find).Output == "1\n" })
	p.post(t, "/v1/commands/"+r.ID+"/kill")
	if out := p.run(t, find).Output; out != "0\n" {
		t.Errorf("after the kill there are %s", out)
	}
}

// resident is podd's memory in bytes.
func (p *podd) resident(t *testing.T) int {
	t.Helper()
	var kb int
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		fmt.Sscanf(line, "VmRSS: %d kB", &kb)
	}
	if kb == 0 {
		t.Fatalf("no VmRSS in %s", status)
	}
	return kb << 10
}

// A command that writes for ever costs neither memory nor disk, and never
// waits.
func TestEndlessOutput(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	bg, err := p.Run(t.Context(), poddapi.RunRequest{Command: "yes", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, mark := range []int64{100 << 20, 400 << 20, 1 << 30} {
		var s poddapi.Status
		testutil.Eventually(t, fmt.Sprintf("%d bytes are written", mark), func() bool {
			p.get(t, "/v1/commands/"+bg.ID+"/status", &s)
			return s.Cursor >= mark
		})
		if n := p.resident(t); n > 40<<20 {
			t.Errorf("after %d bytes %d are resident", mark, n)
		}
		if n := size(t, dir); n > 20<<20 {
			t.Errorf("after %d bytes %d are on the disk", mark, n)
		}
		if !s.Running || !s.Truncated {
			t.Errorf("got %+v", s)
		}
	}
	p.post(t, "/v1/commands/"+bg.ID+"/kill")
	if r := p.run(t, "yes | head -c 100000000"); len(r.Output) != poddapi.MaxOutput || !r.Truncated {
		t.Errorf("in the foreground: got %d bytes", len(r.Output))
	}
}

// size is what the files below dir take.
func size(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var fi os.FileInfo
			if fi, err = d.Info(); err == nil {
				n += fi.Size()
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// After a crash, what was finished is there, what ran is not taken for
// finished, and no id is given again.
func TestCommandsOutliveACrash(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	short, long := p.run(t, "echo kept; exit 3"), p.run(t, "yes kept | head -c 3000000")
	bg, err := p.Run(t.Context(), poddapi.RunRequest{Command: "echo begun; exec sleep 300", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	p.rt.CloseIdleConnections()
	p.cmd.Process.Kill()
	p.cmd.Wait() // "signal: killed"
	p = start(t, dir)
	var l poddapi.Logs
	if p.get(t, "/v1/commands/"+short.ID+"/logs", &l); l.Content != "kept\n" || *l.ExitCode != 3 {
		t.Errorf("got %+v", l)
	}
	if p.get(t, "/v1/commands/"+long.ID+"/logs?cursor=2999999", &l); l.Content != "\n" || l.Cursor != 3_000_000 || *l.ExitCode != 0 {
		t.Errorf("got %+v", l)
	}
	l = poddapi.Logs{}
	if p.get(t, "/v1/commands/"+bg.ID+"/logs", &l); l.Running || l.ExitCode != nil {
		t.Errorf("got %+v", l)
	}
	if q, err := procfs.Read(bg.PID); err == nil && !q.Zombie() {
		t.Errorf("process %d lives, and nobody takes its output", bg.PID)
	}
	for range 3 {
		if id := p.run(t, "true").ID; id == short.ID || id == long.ID || id == bg.ID {
			t.Errorf("id %s is given again", id)
		}
	}
}
