package main_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

// Whatever a guest has put where our files go, and where the browser's do, no
// command waits for it or fails.
func TestFilesInTheWay(t *testing.T) {
	if !enter(t) {
		return
	}
	start(t)
	ctl("stop")
	files := []string{ttydPidFile, runDir + "/openbox.xml", runDir + "/vnc.sock", runDir + "/resolution", "/tmp/.X99-lock"}
	for _, name := range components {
		files = append(files, filepath.Join(runDir, name+".pid"))
	}
	for _, name := range []string{"xvfb", "openbox", "chromium", "vnc", "websockify", "ttyd"} {
		files = append(files, filepath.Join(runDir, name+".log"))
	}
	for _, name := range []string{"Local State", "Default/Preferences", "SingletonLock", "SingletonCookie", "SingletonSocket", "DevToolsActivePort"} {
		files = append(files, filepath.Join(profile, name))
	}
	for name, put := range map[string]func(path string) error{
		"pipes":       func(path string) error { return unix.Mkfifo(path, 0o644) },
		"directories": func(path string) error { return os.MkdirAll(filepath.Join(path, "full", "er"), 0o755) },
		"loops":       func(path string) error { return os.Symlink(path, path) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range files {
				if err := errors.Join(os.RemoveAll(path), put(path)); err != nil {
					t.Fatal(err)
				}
			}
			if code, r, output := ctl("status"); code != 0 || r.Status != "stopped" {
				t.Errorf("status: exit code %d, %s", code, output)
			}
			start(t)
			if code, r, output := ctl("stop"); code != 0 || r.Status != "stopped" {
				t.Errorf("stop: exit code %d, %s", code, output)
			}
		})
	}
}

// A browser that complains without end fills no disk.
func TestLogsStaySmall(t *testing.T) {
	if !enter(t) {
		return
	}
	start(t)
	log := runDir + "/chromium.log"
	f, err := os.OpenFile(log, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(strings.Repeat("ERROR: handshake failed\n", 5<<20/24)); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "a small log", func() bool {
		info, err := os.Stat(log)
		return err == nil && info.Size() < 1<<20
	})
	if info, err := os.Stat(log + ".1"); err != nil || info.Size() > 1<<20 {
		t.Errorf("the log's end: %v", err)
	}
}

// An error is said once on standard error, and once as JSON.
func TestErrorIsSaidOnce(t *testing.T) {
	if !enter(t) {
		return
	}
	start(t)
	code, r, output := ctl("screenshot", "/nonexistent/x.png")
	if code != 1 || r.Error != "not_written" || !strings.Contains(r.Message, "/nonexistent") || strings.Count(output, "no such file") != 2 {
		t.Errorf("exit code %d, %s", code, output)
	}
}
