package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubeplexai/cubepod/desktopctl/boxtest"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

var program string

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "ttyd" {
		serveAsTtyd()
		return
	}
	path, clean, err := boxtest.Build("cubepod-desktop-ctl")
	if err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
	program = path
	code := m.Run()
	clean()
	os.Exit(code)
}

const (
	runDir  = "/run/cubepod/desktop"
	profile = "/home/cubeplex/.config/chromium"
)

var components = []string{"xvfb", "wm", "chromium", "vnc", "websockify", "ttyd"}

// result is what the ctl prints.
type result struct {
	Status     string         `json:"status"`
	Display    string         `json:"display"`
	Resolution string         `json:"resolution"`
	Ports      map[string]int `json:"ports"`
	Pids       map[string]int `json:"pids"`
	Timings    map[string]int `json:"timings_ms"`
	Error      string         `json:"error"`
	Message    string         `json:"message"`
}

// enter puts t into a guest with all the programs of a desktop.
func enter(t *testing.T) bool {
	t.Helper()
	return furnish(t, boxtest.Enter)
}

// enterAsRoot is enter for a test that is root there.
func enterAsRoot(t *testing.T) bool {
	t.Helper()
	return furnish(t, boxtest.EnterAsRoot)
}

// furnish enters a guest by the function given and puts there what a desktop
// needs.
func furnish(t *testing.T, enter func(*testing.T, ...string) bool) bool {
	t.Helper()
	for _, name := range []string{"Xvfb", "openbox", "x11vnc", "chromium"} {
		testutil.NeedProgram(t, name)
	}
	if !enter(t, filepath.Dir(program)) {
		return false
	}
	// The pages are another package's; any will do here.
	web := filepath.Join("/tmp", "web")
	for _, page := range []string{"viewer", "terminal"} {
		if err := os.MkdirAll(filepath.Join(web, page), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(web, page, "index.html"), []byte("<title>"+page+"</title>"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("CUBEPOD_WEB_DIR", web)
	t.Cleanup(func() {
		if t.Failed() {
			logs, _ := filepath.Glob(runDir + "/*.log")
			for _, log := range logs {
				b, _ := os.ReadFile(log)
				t.Logf("%s:\n%s", log, b[max(0, len(b)-2000):])
			}
		}
		ctl("stop")
	})
	return true
}

// ctl runs the program and gives its exit code, what it printed as JSON, and
// its output as it was.
func ctl(args ...string) (code int, r result, output string) { return ctlAs(os.Getuid(), args...) }

// ctlAs is ctl as that user.
func ctlAs(uid int, args ...string) (code int, r result, output string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	if uid != os.Getuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if cmd.ProcessState != nil {
		code = cmd.ProcessState.ExitCode()
	} else {
		code = -1
	}
	output = fmt.Sprintf("%v: stdout %q, stderr %q", err, stdout.String(), stderr.String())
	if bytes.Count(stdout.Bytes(), []byte("\n")) != 1 || json.Unmarshal(stdout.Bytes(), &r) != nil {
		r.Status = "no line of JSON"
	}
	return code, r, output
}

// start starts the desktop and fails t unless all of it runs.
func start(t *testing.T, args ...string) result {
	t.Helper()
	code, r, output := ctl(append([]string{"start"}, args...)...)
	if code != 0 || r.Status != "running" || len(r.Pids) != len(components) {
		t.Fatalf("start %q: exit code %d, %s", args, code, output)
	}
	return r
}

// kill ends a daemon and waits until it is gone.
func kill(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, fmt.Sprintf("the end of %d", pid), func() bool { return !alive(pid) })
}

// alive reports whether pid runs, zombies not counted.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && len(b) > 0
}
