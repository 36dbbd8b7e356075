package main_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubeplexai/cubepod/desktopctl/chrome"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// What others hold is said, and who they are; it is never mistaken for ours,
// however much it looks like it.
func TestForeignPorts(t *testing.T) {
	if !enter(t) {
		return
	}
	for _, port := range []int{8080, 7681, 9222, 9223} {
		t.Run(fmt.Sprint(port), func(t *testing.T) {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				t.Fatal(err)
			}
			srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "[]") })}
			go srv.Serve(l)
			t.Cleanup(func() {
				srv.Close()
				ctl("stop") // of the rest
			})
			wantError(t, "port_in_use", fmt.Sprint(port), fmt.Sprint(os.Getpid()))
		})
	}
	start(t)
}

func TestForeignDisplay(t *testing.T) {
	if !enter(t) {
		return
	}
	theirs := exec.Command("Xvfb", ":99", "-nolisten", "tcp")
	if err := theirs.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		theirs.Process.Kill()
		theirs.Wait()
	})
	testutil.Eventually(t, "their X server listens", func() bool {
		conn, err := net.Dial("unix", "/tmp/.X11-unix/X99")
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	wantError(t, "display_in_use", ":99", fmt.Sprint(theirs.Process.Pid))
	theirs.Process.Kill()
	theirs.Wait()
	start(t)
}

// A profile that somebody else's browser has open stays theirs.
func TestForeignBrowser(t *testing.T) {
	if !enter(t) {
		return
	}
	program, err := chrome.Find("")
	if err != nil {
		t.Fatal(err)
	}
	theirs := exec.Command(program, "--headless", "--no-sandbox", "--disable-dev-shm-usage", "--user-data-dir="+profile, "about:blank")
	if err := theirs.Start(); err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(func() {
		theirs.Process.Kill()
		theirs.Wait()
	})
	t.Cleanup(end)
	lock := filepath.Join(profile, "SingletonLock")
	testutil.Eventually(t, "their browser has the profile", func() bool { _, err := os.Lstat(lock); return err == nil })
	wantError(t, "profile_in_use", profile, fmt.Sprint(theirs.Process.Pid))
	if _, err := os.Lstat(lock); err != nil {
		t.Errorf("their lock: %v", err)
	}
	end()
	start(t)
}

// A profile with files of another user's is said to have them.
func TestForeignProfile(t *testing.T) {
	if !enterAsRoot(t) {
		return
	}
	preferences := filepath.Join(profile, "Default", "Preferences")
	start(t)
	ctl("stop")
	if err := os.Chown(preferences, 0, 0); err != nil {
		t.Fatal(err)
	}
	wantError(t, "profile_not_writable", preferences)
}

// wantError starts the desktop, which must fail with that error and a message
// that has all of words in it.
func wantError(t *testing.T, want string, words ...string) {
	t.Helper()
	code, r, output := ctl("start")
	if code != 1 || r.Error != want {
		t.Errorf("want error %s: exit code %d, %s", want, code, output)
	}
	for _, word := range words {
		if !strings.Contains(r.Message, word) {
			t.Errorf("no %s in the message %q", word, r.Message)
		}
	}
}

// A run directory that is another's, or cannot be written, is said to be.
func TestForeignRunDir(t *testing.T) {
	if !enterAsRoot(t) {
		return
	}
	for name, options := range map[string]struct {
		flags uintptr
		uid   int
	}{
		"another's":    {0, 0},
		"cannot write": {unix.MS_RDONLY, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			err := errors.Join(os.MkdirAll(runDir, 0o755),
				unix.Mount("tmpfs", runDir, "tmpfs", options.flags, fmt.Sprintf("uid=%d,mode=0755", options.uid)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(runDir, unix.MNT_DETACH); err != nil {
					t.Error(err)
				}
			})
			for name, uid := range map[string]int{"root": 0, "the guest": 1000} {
				if code, r, output := ctlAs(uid, "start"); code != 1 || r.Error != "run_dir" || !strings.Contains(r.Message, runDir) {
					t.Errorf("as %s: exit code %d, %s", name, code, output)
				}
			}
		})
	}
}
