package files_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/podd/files"
)

func TestWrite(t *testing.T) {
	testutil.NeedRoot(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "a/b/ü x")
	data := strings.Repeat("0123456789", 100_000)
	n, err := files.Write(path, user, 0o640, strings.NewReader(data))
	if err != nil || n != int64(len(data)) || content(t, path) != data {
		t.Fatalf("got %d, %v", n, err)
	}
	if fi, _ := os.Stat(path); fi.Mode() != 0o640 {
		t.Errorf("got mode %v", fi.Mode())
	}
	for _, p := range []string{"a", "a/b", "a/b/ü x"} {
		if o := owner(t, filepath.Join(dir, p)); o != user {
			t.Errorf("%s belongs to %v", p, o)
		}
	}
	if n, err := files.Write(path, files.Owner{}, 0o600, strings.NewReader("")); err != nil || n != 0 || content(t, path) != "" || owner(t, path) != (files.Owner{}) {
		t.Errorf("replace: got %d, %v", n, err)
	}
	if got := names(t, filepath.Dir(path)); len(got) != 1 {
		t.Errorf("got %v", got)
	}
}

func TestWriteIsWholeOrNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	put(t, path, "old")
	broken := io.MultiReader(strings.NewReader("half"), iotest.ErrReader(errors.New("gone")))
	if _, err := files.Write(path, user, 0o644, broken); code(err) != "body_incomplete" {
		t.Errorf("got %v", err)
	}
	if content(t, path) != "old" || len(names(t, dir)) != 1 {
		t.Errorf("got %q among %v", content(t, path), names(t, dir))
	}
}

func TestWriteFollowsNoPlantedLink(t *testing.T) {
	testutil.NeedRoot(t)
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside")
	put(t, outside+"/f", "safe")
	put(t, dir+"/home/keep", "")
	plant(t, outside, dir+"/home/dir")
	plant(t, outside+"/f", dir+"/home/file")
	plant(t, ".", dir+"/home/self")
	for _, p := range []string{"/home/dir/f", "/home/dir/new", "/home/dir/sub/new", "/home/self/new"} {
		if _, err := files.Write(dir+p, user, 0o644, strings.NewReader("evil")); code(err) != "symlink_refused" {
			t.Errorf("%s: got %v", p, err)
		}
	}
	// A link in the place of the file itself is replaced.
	if _, err := files.Write(dir+"/home/file", user, 0o644, strings.NewReader("new")); err != nil {
		t.Error(err)
	}
	if content(t, outside+"/f") != "safe" || len(names(t, outside)) != 1 || content(t, dir+"/home/file") != "new" {
		t.Errorf("got %q, %v, %q", content(t, outside+"/f"), names(t, outside), content(t, dir+"/home/file"))
	}
	// Root's own links are the system's.
	if err := os.Symlink("../outside/./../outside", dir+"/home/roots"); err != nil {
		t.Fatal(err)
	}
	if _, err := files.Write(dir+"/home/roots/g", user, 0o644, strings.NewReader("g")); err != nil || content(t, outside+"/g") != "g" {
		t.Errorf("got %v", err)
	}
}

func TestWriteErrors(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/file", "x")
	os.Symlink("loop", dir+"/loop")
	for path, want := range map[string]string{
		"relative":                           "invalid_path",
		"/":                                  "invalid_path",
		dir + "/a\x00b":                      "invalid_path",
		dir:                                  "is_directory",
		dir + "/file/below":                  "not_directory",
		dir + "/loop/below":                  "invalid_path",
		dir + "/" + strings.Repeat("x", 300): "invalid_path",
	} {
		if _, err := files.Write(path, user, 0o644, strings.NewReader("y")); code(err) != want {
			t.Errorf("%.60q: got %v, want %s", path, err, want)
		}
	}
}

func TestWriteOnAFullDisk(t *testing.T) {
	dir := tmpfs(t, "64k")
	put(t, dir+"/f", "old")
	_, err := files.Write(dir+"/f", user, 0o644, bytes.NewReader(make([]byte, 1<<20)))
	if code(err) != "no_space" || content(t, dir+"/f") != "old" || len(names(t, dir)) != 1 {
		t.Errorf("got %v, %v", err, names(t, dir))
	}
}

// A file can be executed the moment it is written, although other processes
// are being started all the while.
func TestWrittenFilesAreNotBusy(t *testing.T) {
	dir := t.TempDir()
	stop := make(chan struct{})
	var forks sync.WaitGroup
	for range 4 {
		forks.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					exec.Command("/bin/true").Run()
				}
			}
		})
	}
	defer forks.Wait()
	defer close(stop)
	for i := range 60 {
		path := fmt.Sprintf("%s/%d", dir, i)
		if _, err := files.Write(path, user, 0o755, strings.NewReader("#!/bin/sh\necho ok\n")); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(path).Output(); err != nil || string(out) != "ok\n" {
			t.Fatalf("got %q, %v", out, err)
		}
	}
}
