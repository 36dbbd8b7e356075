package local_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi"
	"github.com/cubeplexai/cubepod/sessionapi/local"
	"github.com/cubeplexai/cubepod/sessionapi/runtimetest"
)

// traces lists the processes that have data in their arguments or among their
// mounts.
func traces(t *testing.T, data string) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		for _, file := range []string{"cmdline", "mountinfo"} {
			if content, err := os.ReadFile(filepath.Join("/proc", e.Name(), file)); err == nil && strings.Contains(string(content), data) {
				found = append(found, e.Name()+"/"+file)
			}
		}
	}
	return found
}

func wantNothingLeft(t *testing.T, data string) {
	t.Helper()
	if found := traces(t, data); found != nil {
		t.Errorf("still there: %v", found)
	}
	sockets, err := os.ReadDir(filepath.Join(data, "sockets"))
	if err != nil || len(sockets) > 0 {
		t.Errorf("sockets: %v, %v", sockets, err)
	}
}

func isRunning(t *testing.T, rt sessionapi.Runtime, id session.ID) bool {
	t.Helper()
	st, err := rt.Inspect(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return st.Running
}

// supervisorOf reads the pid of pasta or unshare.
func supervisorOf(t *testing.T, data string, id session.ID) int {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(data, "sandboxes", string(id), "run.json"))
	if err != nil {
		t.Fatal(err)
	}
	var st struct{ Supervisor struct{ PID int } }
	if err := json.Unmarshal(content, &st); err != nil || st.Supervisor.PID == 0 {
		t.Fatalf("no supervisor in %s, %v", content, err)
	}
	return st.Supervisor.PID
}

func TestStopLeavesNothing(t *testing.T) {
	data := dataDir(t)
	rt := usable(t, open(t, local.Options{Data: data, GuestDir: standIn(t)}))
	spec := runtimetest.NewSpec()
	g, _ := runtimetest.Start(t, rt, spec)
	g.Run(t, "setsid sleep 1000 >/dev/null 2>&1 &")
	g.RunRoot(t, "setsid sleep 1000 >/dev/null 2>&1 &")
	if len(traces(t, data)) < 6 {
		t.Fatalf("the chain and two sleepers leave these traces only: %v", traces(t, data))
	}
	if err := rt.Stop(t.Context(), spec.ID); err != nil {
		t.Fatal(err)
	}
	wantNothingLeft(t, data)
	for _, name := range []string{"run", "etc"} {
		if _, err := os.Stat(filepath.Join(data, "sandboxes", string(spec.ID), name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
}

func TestKilledFromOutside(t *testing.T) {
	guestDir := standIn(t)
	tests := []struct {
		name string
		kill func(t *testing.T, data string, id session.ID, g runtimetest.Guest) error
	}{
		{"supervisor", func(t *testing.T, data string, id session.ID, _ runtimetest.Guest) error {
			return syscall.Kill(supervisorOf(t, data, id), syscall.SIGKILL)
		}},
		{"podd", func(t *testing.T, _ string, _ session.ID, g runtimetest.Guest) error {
			_, _, _ = g.TryAs(t.Context(), 0, "kill -9 $PPID") // the answer dies with it
			return nil
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			data := dataDir(t)
			rt := usable(t, open(t, local.Options{Data: data, GuestDir: guestDir}))
			spec := runtimetest.NewSpec()
			g, _ := runtimetest.Start(t, rt, spec)
			g.Run(t, "setsid sleep 1000 >/dev/null 2>&1 & echo kept >/workspace/f")
			if err := tt.kill(t, data, spec.ID, g); err != nil {
				t.Fatal(err)
			}
			testutil.Eventually(t, "inspect says not running", func() bool { return !isRunning(t, rt, spec.ID) })
			testutil.Eventually(t, "no process is left", func() bool { return traces(t, data) == nil })

			g, _ = runtimetest.Start(t, rt, runtimetest.Incarnation(spec.ID, 2))
			if got := g.Run(t, "cat /workspace/f"); got != "kept\n" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestStopRightAfterAKill stops while the kernel is still taking the sandbox
// down.
func TestStopRightAfterAKill(t *testing.T) {
	data := dataDir(t)
	rt := usable(t, open(t, local.Options{Data: data, GuestDir: standIn(t)}))
	for n := range int64(5) {
		spec := runtimetest.Incarnation(session.NewID(), n+1)
		g, _ := runtimetest.Start(t, rt, spec)
		g.Run(t, "for i in 1 2 3 4 5 6 7 8; do setsid sleep 1000 >/dev/null 2>&1 & done")
		if err := syscall.Kill(supervisorOf(t, data, spec.ID), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := rt.Stop(t.Context(), spec.ID); err != nil {
			t.Fatal(err)
		}
		wantNothingLeft(t, data)
	}
}

const startAndStayEnv = "CUBEPOD_TEST_START_IN"

// TestStartAndStay is no test: it is the program that TestRestartOfTheAPI kills.
func TestStartAndStay(t *testing.T) {
	data := os.Getenv(startAndStayEnv)
	if data == "" {
		return
	}
	rt, err := local.New(local.Options{Data: data, GuestDir: os.Getenv("CUBEPOD_TEST_GUEST_DIR")})
	if err != nil {
		t.Fatal(err)
	}
	spec := runtimetest.NewSpec()
	if _, err := rt.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	fmt.Println("started", spec.ID)
	<-make(chan struct{})
}

func TestRestartOfTheAPI(t *testing.T) {
	data, guestDir := dataDir(t), standIn(t)
	rt := usable(t, open(t, local.Options{Data: data, GuestDir: guestDir}))

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	api := exec.Command(self, "-test.run=^TestStartAndStay$")
	api.Env = append(os.Environ(), startAndStayEnv+"="+data, "CUBEPOD_TEST_GUEST_DIR="+guestDir)
	out, err := api.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := api.Start(); err != nil {
		t.Fatal(err)
	}
	var id session.ID
	lines := bufio.NewScanner(out)
	for id == "" && lines.Scan() {
		if s, ok := strings.CutPrefix(lines.Text(), "started "); ok {
			id = session.ID(s)
		}
	}
	if err := api.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Wait would hang if the sandbox held the pipe, too.
	_ = api.Wait()
	if id == "" {
		t.Fatal("the other program did not start a sandbox")
	}
	runtimetest.DeleteAfter(t, rt, id)

	spec := runtimetest.Incarnation(id, 1)
	if !isRunning(t, rt, id) {
		t.Fatal("the sandbox ended with the program that started it")
	}
	before := supervisorOf(t, data, id)
	g, _ := runtimetest.Start(t, rt, spec)
	if err := g.Health(t.Context()); err != nil || supervisorOf(t, data, id) != before {
		t.Errorf("it was started anew, or does not answer: %v", err)
	}
	if err := rt.Stop(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	wantNothingLeft(t, data)
}

// TestCrashBeforeThePIDWasWritten has the state that a program leaves that dies
// between starting a sandbox and writing down its process.
func TestCrashBeforeThePIDWasWritten(t *testing.T) {
	data := dataDir(t)
	rt := usable(t, open(t, local.Options{Data: data, GuestDir: standIn(t)}))
	spec := runtimetest.NewSpec()
	runtimetest.Start(t, rt, spec)
	path := filepath.Join(data, "sandboxes", string(spec.ID), "run.json")
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	left := fmt.Sprintf(`{"incarnation":1,"starting":true,"boot":%q}`, strings.TrimSpace(string(boot)))
	if err := os.WriteFile(path, []byte(left), 0o600); err != nil {
		t.Fatal(err)
	}
	if !isRunning(t, rt, spec.ID) {
		t.Error("it is not found")
	}
	if err := rt.Stop(t.Context(), spec.ID); err != nil {
		t.Fatal(err)
	}
	wantNothingLeft(t, data)
}

// TestPIDOfAnother has a state whose pid has gone to another process since: a
// child of this test's, which must live.
func TestPIDOfAnother(t *testing.T) {
	data := dataDir(t)
	rt := usable(t, open(t, local.Options{Data: data, GuestDir: standIn(t)}))
	spec := runtimetest.NewSpec()
	runtimetest.Start(t, rt, spec)
	if err := rt.Stop(t.Context(), spec.ID); err != nil {
		t.Fatal(err)
	}
	bystander := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	pid := bystander.Process.Pid
	stale := fmt.Sprintf(`{"incarnation":1,"supervisor":{"pid":%d,"start":1},"init":{"pid":%d,"start":1},"boot":%q}`, pid, pid, strings.TrimSpace(string(boot)))
	if err := os.WriteFile(filepath.Join(data, "sandboxes", string(spec.ID), "run.json"), []byte(stale), 0o600); err != nil {
		t.Fatal(err)
	}
	if isRunning(t, rt, spec.ID) {
		t.Error("another process passes for the sandbox")
	}
	if err := rt.Delete(t.Context(), spec.ID); err != nil {
		t.Fatal(err)
	}
	if err := bystander.Process.Kill(); err != nil { // os.ErrProcessDone if it has ended
		t.Error(err)
	}
	_ = bystander.Wait()
}

func TestOlderIncarnationIsRefused(t *testing.T) {
	rt := newRuntime(t, standIn(t))
	spec := runtimetest.Incarnation(session.NewID(), 5)
	g, _ := runtimetest.Start(t, rt, spec)
	if _, err := rt.Start(t.Context(), runtimetest.Incarnation(spec.ID, 4)); apierror.KindOf(err) != apierror.Conflict {
		t.Errorf("got %v, want conflict", err)
	}
	if err := g.Health(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestNamesThatAreNoIDs(t *testing.T) {
	data := dataDir(t)
	rt := open(t, local.Options{Data: data})
	kept := filepath.Join(data, "sandboxes", string(session.NewID()), "workspace", "f")
	if err := os.MkdirAll(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, id := range []session.ID{"", ".", "..", "../../x", "*"} {
		if _, err := rt.Inspect(t.Context(), id); apierror.KindOf(err) != apierror.NotFound {
			t.Errorf("inspect %q: got %v, want not found", id, err)
		}
		if err := errors.Join(rt.Stop(t.Context(), id), rt.Delete(t.Context(), id)); err != nil {
			t.Errorf("%q: %v", id, err)
		}
		if _, err := rt.Start(t.Context(), sessionapi.Spec{ID: id, Incarnation: 1}); err == nil {
			t.Errorf("start %q: no error", id)
		}
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
}

// script makes a guest directory whose podd is a shell script.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "guest", "podd")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(filepath.Dir(path))
}

func TestPoddThatEnds(t *testing.T) {
	data := dataDir(t)
	rt := usable(t, open(t, local.Options{Data: data, GuestDir: script(t, "echo out of luck >&2; exit 3\n")}))
	spec := runtimetest.NewSpec()
	runtimetest.DeleteAfter(t, rt, spec.ID)
	_, err := rt.Start(t.Context(), spec)
	if e, ok := errors.AsType[*apierror.Error](err); !ok || e.Code != "runtime_unavailable" || !strings.Contains(err.Error(), "out of luck") {
		t.Errorf("got %v", err)
	}
	if strings.Contains(apierror.From(err).Body().Message, "out of luck") {
		t.Error("the client is shown the log")
	}
	wantNothingLeft(t, data)
}

func TestStartGivenUp(t *testing.T) {
	data := dataDir(t)
	rt := usable(t, open(t, local.Options{Data: data, GuestDir: script(t, "echo up; exec sleep 1000\n")}))
	spec := runtimetest.NewSpec()
	runtimetest.DeleteAfter(t, rt, spec.ID)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := rt.Start(ctx, spec)
		failed <- err
	}()
	testutil.Eventually(t, "the silent podd runs", func() bool {
		log, err := os.ReadFile(filepath.Join(data, "sandboxes", string(spec.ID), "log"))
		return err == nil && strings.Contains(string(log), "up\n")
	})
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	wantNothingLeft(t, data)
}

// TestInheritedFiles starts a sandbox in a program that was itself started with
// an open pipe, as make and shells do.
func TestInheritedFiles(t *testing.T) {
	rt := newRuntime(t, standIn(t))
	inherited := filepath.Join(t.TempDir(), "inherited")
	fd, err := syscall.Open(inherited, syscall.O_CREAT|syscall.O_RDWR, 0o600) // without O_CLOEXEC
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	g, _ := runtimetest.Start(t, rt, runtimetest.NewSpec())
	if got := g.RunRoot(t, "ls -l /proc/[0-9]*/fd"); strings.Contains(got, inherited) {
		t.Errorf("the sandbox holds a file of ours:\n%s", got)
	}
}
