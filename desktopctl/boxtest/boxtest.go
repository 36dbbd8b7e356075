// Package boxtest runs a test in a guest of its own: new mount, network, pid
// and host name spaces, empty /tmp, /run and /home, uid 1000. Displays, ports
// and profiles are then the same as in a sandbox and nobody else's.
package boxtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

// inside is set in the guest. Its value is "1".
const inside = "CUBEPOD_TEST_BOX"

// Hostname is the guest's.
const Hostname = "boxa"

// limit bounds one test's life in the guest.
const limit = 5 * time.Minute

// Enter reports whether t is in a guest. Outside, it first runs t, and no
// other test, in a new one and reports t's failure; the caller returns.
//
//	if !boxtest.Enter(t) {
//		return
//	}
//
// files are bound at their own paths, readable only.
func Enter(t *testing.T, files ...string) bool {
	t.Helper()
	return enter(t, files, "--unshare-user", "--uid", "1000", "--gid", "1000",
		"--dir", "/home/cubeplex", "--dir", "/run/cubepod")
}

// EnterAsRoot is Enter for a guest in which t is root, and /home and /run are
// empty. It needs root outside, too.
func EnterAsRoot(t *testing.T, files ...string) bool {
	t.Helper()
	testutil.NeedRoot(t)
	return enter(t, files, "--cap-add", "ALL")
}

func enter(t *testing.T, files []string, options ...string) bool {
	t.Helper()
	if os.Getenv(inside) != "" {
		return true
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	bwrap := testutil.NeedProgram(t, "bwrap")
	args := []string{
		"--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--hostname", Hostname,
		"--die-with-parent",
		"--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
		"--perms", "1777", "--tmpfs", "/tmp", "--tmpfs", "/run", "--perms", "0755", "--tmpfs", "/home",
		"--setenv", inside, "1",
	}
	args = append(args, options...)
	for _, f := range append([]string{self, dir}, files...) {
		args = append(args, "--ro-bind", f, f)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	probe := exec.CommandContext(ctx, bwrap, append(args, "--", "true")...)
	if out, err := probe.CombinedOutput(); err != nil {
		testutil.Skip(t, "bubblewrap does not work here: "+string(out))
	}
	args = append(args, "--chdir", dir, "--", self, "-test.run=^"+t.Name()+"$", "-test.v="+boolString(testing.Verbose()))
	out, err := exec.CommandContext(ctx, bwrap, args...).CombinedOutput()
	if err != nil {
		t.Errorf("in the guest: %v\n%s", err, out)
	} else if testing.Verbose() {
		t.Logf("in the guest:\n%s", out)
	}
	return false
}

func boolString(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

// Build compiles the program of the package in the test's directory and
// returns its path and what removes it; in the guest, that of the test
// outside.
func Build(name string) (program string, clean func(), err error) {
	if p := os.Getenv(inside + "_PROGRAM"); p != "" {
		return p, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "boxtest-*")
	if err != nil {
		return "", nil, err
	}
	clean = func() { os.RemoveAll(dir) }
	// Readable by the guest's user, whoever runs the test.
	if err := os.Chmod(dir, 0o755); err != nil {
		clean()
		return "", nil, err
	}
	program = filepath.Join(dir, name)
	cmd := exec.Command("go", "build", "-o", program, ".")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		clean()
		return "", nil, err
	}
	os.Setenv(inside+"_PROGRAM", program)
	return program, clean, nil
}

// Processes counts the living processes of the guest whose program's base
// name is among names.
func Processes(names ...string) int {
	n := 0
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		b, err := os.ReadFile(d + "/cmdline")
		if err != nil {
			continue
		}
		program := filepath.Base(unix.ByteSliceToString(b))
		for _, name := range names {
			if program == name {
				n++
			}
		}
	}
	return n
}
