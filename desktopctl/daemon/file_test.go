package daemon_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubeplexai/cubepod/desktopctl/daemon"
)

// obstacles are what may be in place of a file.
var obstacles = map[string]func(path string) error{
	"a named pipe":     func(path string) error { return unix.Mkfifo(path, 0o644) },
	"a directory":      func(path string) error { return os.MkdirAll(filepath.Join(path, "full", "er"), 0o755) },
	"a link to itself": func(path string) error { return os.Symlink(path, path) },
	"a link elsewhere": func(path string) error { return os.Symlink("/proc/self/stat", path) },
	"a dangling link":  func(path string) error { return os.Symlink("/nonexistent", path) },
	"a socket":         func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o644, 0) },
	"a huge file": func(path string) error {
		return errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, 1<<40))
	},
}

func TestFilesInTheWay(t *testing.T) {
	for name, put := range obstacles {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			if err := errors.Join(put(path), put(path+".new")); err != nil {
				t.Fatal(err)
			}
			if b, err := daemon.ReadFile(path); err == nil {
				t.Errorf("read %q", b)
			}
			if err := daemon.ReplaceFile(path, []byte("text"), 0o600); err != nil {
				t.Fatal(err)
			}
			if b, err := daemon.ReadFile(path); string(b) != "text" || err != nil {
				t.Errorf("read %q, %v", b, err)
			}
			if info, err := os.Lstat(path); err != nil || info.Mode() != 0o600 {
				t.Errorf("mode %v, %v", info.Mode(), err)
			}
			if left, _ := filepath.Glob(path + "?*"); len(left) != 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// A daemon starts, is found and is forgotten whatever is where its files go.
func TestStartWithFilesInTheWay(t *testing.T) {
	for name, put := range obstacles {
		t.Run(name, func(t *testing.T) {
			dir := daemon.Dir(t.TempDir())
			for _, file := range []string{"a.pid", "a.pid.new", "a.log", "a.log.1"} {
				if err := put(filepath.Join(string(dir), file)); err != nil {
					t.Fatal(err)
				}
			}
			if found := dir.Find("a"); len(found) != 0 {
				t.Errorf("found pid %d", found["a"].Pid)
			}
			p := start(t, dir, "a", "exec sleep 600")
			if found := dir.Find("a"); found["a"] == nil || found["a"].Pid != p.Pid {
				t.Errorf("found %v", found)
			}
			pidFile := filepath.Join(string(dir), "a.pid")
			if err := errors.Join(os.Remove(pidFile), put(pidFile), dir.Forget("a")); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(pidFile); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("not forgotten: %v", err)
			}
		})
	}
}
