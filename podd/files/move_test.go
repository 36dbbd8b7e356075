package files_test

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/podd/files"
)

func TestMove(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/a", "a")
	put(t, dir+"/b", "b")
	if _, err := files.Move(dir+"/a", dir+"/b", false); code(err) != "exists" {
		t.Errorf("got %v", err)
	}
	if e, err := files.Move(dir+"/a", dir+"/b", true); err != nil || e.Path != dir+"/b" || content(t, dir+"/b") != "a" {
		t.Errorf("got %+v, %v", e, err)
	}
	if e, err := files.Move(dir+"/b", dir+"/c", false); err != nil || e.Name != "c" {
		t.Errorf("got %+v, %v", e, err)
	}
	if _, err := files.Move(dir+"/none", dir+"/d", false); code(err) != "file_not_found" {
		t.Errorf("got %v", err)
	}
}

// tmpfs is a file system of its own.
func tmpfs(t *testing.T, size string) string {
	t.Helper()
	testutil.NeedRoot(t)
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "none", dir).CombinedOutput(); err != nil {
		testutil.Skip(t, fmt.Sprintf("mount: %s", out))
	}
	t.Cleanup(func() { exec.Command("umount", "-l", dir).Run() })
	return dir
}

func TestMoveToAnotherFileSystem(t *testing.T) {
	other, dir := tmpfs(t, "1m"), t.TempDir()
	put(t, dir+"/tree/sub/f", "content")
	os.Symlink("/etc/shadow", dir+"/tree/link")
	old := time.Unix(1_600_000_000, 0)
	for _, p := range []string{"/tree", "/tree/sub", "/tree/sub/f"} {
		os.Chown(dir+p, 1000, 1000)
		syscall.Chmod(dir+p, 0o4750)
		os.Chtimes(dir+p, old, old)
	}
	if e, err := files.Move(dir+"/tree", other+"/moved", false); err != nil || !e.IsDir {
		t.Fatalf("got %+v, %v", e, err)
	}
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("left are %v", got)
	}
	if got := names(t, other); len(got) != 1 || content(t, other+"/moved/sub/f") != "content" {
		t.Errorf("got %v", got)
	}
	for _, p := range []string{"/moved", "/moved/sub", "/moved/sub/f"} {
		if fi, err := os.Stat(other + p); err != nil || fi.Mode()&os.ModeSetuid == 0 || fi.Mode().Perm() != 0o750 || !fi.ModTime().Equal(old) || owner(t, other+p) != user {
			t.Errorf("%s: got %v %v of %v, %v", p, fi.Mode(), fi.ModTime(), owner(t, other+p), err)
		}
	}
	if to, err := os.Readlink(other + "/moved/link"); to != "/etc/shadow" {
		t.Errorf("got a link to %s, %v", to, err)
	}

	put(t, dir+"/f", "new")
	put(t, other+"/f", "old")
	if _, err := files.Move(dir+"/f", other+"/f", false); code(err) != "exists" || content(t, other+"/f") != "old" || content(t, dir+"/f") != "new" {
		t.Errorf("got %v", err)
	}
	if _, err := files.Move(dir+"/f", other+"/f", true); err != nil || content(t, other+"/f") != "new" {
		t.Errorf("got %v", err)
	}
}

// A move that cannot be done as a whole is not done at all.
func TestHalfAMove(t *testing.T) {
	other, dir := tmpfs(t, "64k"), t.TempDir()
	put(t, dir+"/full/a", "small")
	put(t, dir+"/full/b", string(make([]byte, 1<<20)))
	put(t, dir+"/pipe/a", "small")
	if err := syscall.Mkfifo(dir+"/pipe/b", 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"full": "no_space", "pipe": "cross_device"} {
		if _, err := files.Move(dir+"/"+name, other+"/x", false); code(err) != want {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
		if got := names(t, other); len(got) != 0 || len(names(t, dir+"/"+name)) != 2 {
			t.Errorf("%s: got %v and %v", name, got, names(t, dir+"/"+name))
		}
	}
}
