package daemon_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubeplexai/cubepod/desktopctl/daemon"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// fill makes a file of five MiB of lines.
func fill(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(strings.Repeat("a line\n", 5<<20/7)), 0o644); err != nil {
		t.Fatal(err)
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// A log is cut while it is written: its writer goes on, and its end is kept.
func TestTrimLogs(t *testing.T) {
	dir := daemon.Dir(t.TempDir())
	log, more := dir.LogPath("a"), filepath.Join(t.TempDir(), "more")
	if err := unix.Mkfifo(more, 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, dir, "a", `yes 'a line' | head -n 800000; echo last; read x <`+more+`; echo after; exec sleep 600`)
	testutil.Eventually(t, "a large log", func() bool { return size(t, log) == 800000*7+5 })
	if err := dir.TrimLogs(); err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(log + ".1")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(kept); n > 1<<20 || n < 1<<20-7 || !strings.HasPrefix(string(kept), "a line\n") || !strings.HasSuffix(string(kept), "\nlast\n") {
		t.Errorf("kept %d bytes: %.10q … %q", n, kept, kept[max(0, n-20):])
	}
	if n := size(t, log); n != 0 {
		t.Errorf("%d bytes of log are left", n)
	}
	if err := os.WriteFile(more, []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the writer goes on", func() bool { b, _ := os.ReadFile(log); return string(b) == "after\n" })
	if err := dir.TrimLogs(); err != nil || size(t, log) != 6 {
		t.Errorf("a small log has %d bytes, %v", size(t, log), err)
	}
}

// Only logs are cut, and what is in the way of one keeps none from it.
func TestTrimLogsWithFilesInTheWay(t *testing.T) {
	dir := daemon.Dir(t.TempDir())
	other := filepath.Join(t.TempDir(), "other")
	fill(t, other)
	fill(t, dir.LogPath("z"))
	if err := errors.Join(os.Symlink(other, dir.LogPath("link")), unix.Mkfifo(dir.LogPath("pipe"), 0o644),
		os.MkdirAll(dir.LogPath("dir")+"/x", 0o755), os.MkdirAll(dir.LogPath("z")+".1/x", 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := dir.TrimLogs(); err != nil {
		t.Error(err)
	}
	if n := size(t, dir.LogPath("z")); n != 0 {
		t.Errorf("%d bytes of log are left", n)
	}
	if size(t, other) < 5<<20-7 {
		t.Error("a link's target was cut")
	}
}

// A disk that is full of a log is emptied of it, even if nothing can be kept.
func TestTrimLogsOnFullDisk(t *testing.T) {
	testutil.NeedRoot(t)
	mount := t.TempDir()
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "size=5m"); err != nil {
		testutil.Skip(t, "cannot mount: "+err.Error())
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mount, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	dir := daemon.Dir(mount)
	if err := os.WriteFile(dir.LogPath("a"), make([]byte, 6<<20), 0o644); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if err := dir.TrimLogs(); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("error %v", err)
	}
	if left, _ := os.ReadDir(mount); size(t, dir.LogPath("a")) != 0 || len(left) != 1 {
		t.Errorf("left: %v, %d bytes of log", left, size(t, dir.LogPath("a")))
	}
}

func TestKeepLogsSmall(t *testing.T) {
	dir := daemon.Dir(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		dir.KeepLogsSmall(ctx, func(err error) { t.Error(err) })
	}()
	for range 2 { // at once, and again
		fill(t, dir.LogPath("a"))
		testutil.Eventually(t, "a small log", func() bool { return size(t, dir.LogPath("a")) == 0 })
	}
	cancel()
	<-ended
}
