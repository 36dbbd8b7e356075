package files_test

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/podd/files"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/f", "content")
	if err := syscall.Mkfifo(dir+"/pipe", 0o644); err != nil {
		t.Fatal(err)
	}
	f, fi, err := files.Open(dir + "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if data, _ := io.ReadAll(f); string(data) != "content" || fi.Size() != 7 {
		t.Errorf("got %q", data)
	}
	for path, want := range map[string]string{
		dir + "/none": "file_not_found", dir + "/f/below": "file_not_found",
		dir: "not_regular", dir + "/pipe": "not_regular", "/dev/null": "not_regular", "f": "invalid_path",
	} {
		if _, _, err := files.Open(path); code(err) != want {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
	}
}

func TestListAndStat(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/b", "four")
	put(t, dir+"/a/x", "")
	os.Symlink("nowhere", dir+"/c")
	syscall.Chmod(dir+"/b", 0o4751)
	list, err := files.List(dir)
	if err != nil || len(list) != 3 {
		t.Fatalf("got %v, %v", list, err)
	}
	a, b, c := list[0], list[1], list[2]
	if a.Name != "a" || !a.IsDir || a.Path != dir+"/a" || a.Mode != "0755" {
		t.Errorf("got %+v", a)
	}
	if b.Name != "b" || b.IsDir || b.Size != 4 || b.Mode != "4751" || b.MTime.IsZero() {
		t.Errorf("got %+v", b)
	}
	if c.Name != "c" || c.Link != "nowhere" || c.IsDir {
		t.Errorf("got %+v", c)
	}
	for i, name := range []string{"a", "b", "c"} {
		if e, err := files.Stat(filepath.Join(dir, name)); err != nil || e != list[i] {
			t.Errorf("got %+v, %v, want %+v", e, err, list[i])
		}
	}
	if _, err := files.List(dir + "/b"); code(err) != "not_directory" {
		t.Errorf("got %v", err)
	}
	if _, err := files.List(dir + "/none"); code(err) != "file_not_found" {
		t.Errorf("got %v", err)
	}
	if list, err := files.List(t.TempDir()); err != nil || list == nil || len(list) != 0 {
		t.Errorf("empty: got %v, %v", list, err)
	}
}

func TestMkdir(t *testing.T) {
	testutil.NeedRoot(t)
	dir := t.TempDir()
	e, err := files.Mkdir(dir+"/a/b", user, 0o1770)
	if err != nil || !e.IsDir || e.Mode != "1770" || e.UID != 1000 || owner(t, dir+"/a") != user {
		t.Errorf("got %+v, %v", e, err)
	}
	if again, err := files.Mkdir(dir+"/a/b", files.Owner{}, 0o700); err != nil || again != e {
		t.Errorf("again: got %+v, %v", again, err)
	}
	put(t, dir+"/f", "")
	if _, err := files.Mkdir(dir+"/f", user, 0o755); code(err) != "exists" {
		t.Errorf("got %v", err)
	}
	plant(t, "/etc", dir+"/link")
	if _, err := files.Mkdir(dir+"/link/cubepod-test", user, 0o755); code(err) != "symlink_refused" {
		t.Errorf("got %v", err)
	}
}

func TestRemove(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/d/e/f", "x")
	put(t, dir+"/safe/f", "x")
	os.Symlink(dir+"/safe", dir+"/d/link")
	os.Mkdir(dir+"/empty", 0o755)
	if err := files.Remove(dir+"/d", false); code(err) != "not_empty" {
		t.Errorf("got %v", err)
	}
	for _, p := range []string{"/empty", "/d/e/f"} {
		if err := files.Remove(dir+p, false); err != nil {
			t.Error(err)
		}
	}
	if err := files.Remove(dir+"/d", true); err != nil {
		t.Error(err)
	}
	if got := names(t, dir); len(got) != 1 || content(t, dir+"/safe/f") != "x" {
		t.Errorf("got %v", got)
	}
	if err := files.Remove(dir+"/d", true); code(err) != "file_not_found" {
		t.Errorf("got %v", err)
	}
	if err := files.Remove("/", true); code(err) != "invalid_path" {
		t.Errorf("got %v", err)
	}
}

func TestRemoveFollowsNoPlantedLink(t *testing.T) {
	testutil.NeedRoot(t)
	dir := t.TempDir()
	put(t, dir+"/safe/f", "x")
	plant(t, dir+"/safe", dir+"/link")
	if err := files.Remove(dir+"/link/f", false); code(err) != "symlink_refused" {
		t.Errorf("got %v", err)
	}
	if err := files.Remove(dir+"/link", true); err != nil || content(t, dir+"/safe/f") != "x" {
		t.Errorf("got %v", err)
	}
}
