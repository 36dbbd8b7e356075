package files_test

import (
	"archive/tar"
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/podd/files"
)

func TestPackAndUnpack(t *testing.T) {
	testutil.NeedRoot(t)
	dir := t.TempDir()
	put(t, dir+"/from/a/f", strings.Repeat("f", 100_000))
	put(t, dir+"/from/x", "#!/bin/sh")
	os.Chmod(dir+"/from/x", 0o755)
	os.Symlink("a/f", dir+"/from/link")
	os.Mkdir(dir+"/from/empty", 0o700)
	var b bytes.Buffer
	ready := false
	if err := files.Pack(dir+"/from", &b, func() { ready = b.Len() == 0 }); err != nil || !ready {
		t.Fatalf("%v, ready %v", err, ready)
	}
	n, size, err := files.Unpack(dir+"/to/here", user, &b)
	if err != nil || n != 3 || size != 100_009 {
		t.Errorf("got %d files of %d bytes, %v", n, size, err)
	}
	if content(t, dir+"/to/here/link") != strings.Repeat("f", 100_000) {
		t.Error("another content")
	}
	for _, p := range []string{"/to", "/to/here", "/to/here/a", "/to/here/a/f", "/to/here/link", "/to/here/empty"} {
		if owner(t, dir+p) != user {
			t.Errorf("%s belongs to %v", p, owner(t, dir+p))
		}
	}
	for p, mode := range map[string]os.FileMode{"x": 0o755, "a/f": 0o644, "empty": 0o700 | os.ModeDir} {
		from, _ := os.Stat(dir + "/from/" + p)
		to, err := os.Stat(dir + "/to/here/" + p)
		if err != nil || to.Mode() != mode || !to.ModTime().Equal(from.ModTime()) {
			t.Errorf("%s: got %v of %v, %v", p, to.Mode(), to.ModTime(), err)
		}
	}
	var one bytes.Buffer
	if err := files.Pack(dir+"/from/x", &one, func() {}); err != nil {
		t.Fatal(err)
	}
	if h, err := tar.NewReader(&one).Next(); err != nil || h.Name != "x" {
		t.Errorf("one file: got %+v, %v", h, err)
	}
	if err := files.Pack(dir+"/none", &one, func() { t.Error("ready") }); code(err) != "file_not_found" {
		t.Errorf("got %v", err)
	}
}

func archive(t *testing.T, entries ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, h := range entries {
		if h.Typeflag == 0 {
			h.Typeflag, h.Size = tar.TypeReg, 4
		}
		h.Mode = 0o6755
		if err := tw.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			tw.Write([]byte("evil"))
		}
	}
	tw.Close()
	return &b
}

func TestUnpackLeavesItsDirectoryAlone(t *testing.T) {
	testutil.NeedRoot(t)
	for name, c := range map[string]struct {
		entries []tar.Header
		code    string
	}{
		"dots":            {[]tar.Header{{Name: "../f"}}, "unsafe_path"},
		"inner dots":      {[]tar.Header{{Name: "a/../../f"}}, "unsafe_path"},
		"absolute":        {[]tar.Header{{Name: "/f"}}, "unsafe_path"},
		"link":            {[]tar.Header{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../outside"}, {Name: "l/f"}}, "unsafe_path"},
		"link to file":    {[]tar.Header{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../outside/f"}, {Name: "l"}}, ""},
		"link to link":    {[]tar.Header{{Name: "a", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "b", Typeflag: tar.TypeSymlink, Linkname: "a/outside"}, {Name: "b/f"}}, "unsafe_path"},
		"hard link":       {[]tar.Header{{Name: "h", Typeflag: tar.TypeLink, Linkname: "../outside/f"}, {Name: "h"}}, "unsafe_path"},
		"hard by link":    {[]tar.Header{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../outside"}, {Name: "h", Typeflag: tar.TypeLink, Linkname: "l/f"}}, "unsafe_path"},
		"planted":         {[]tar.Header{{Name: "planted/f"}}, "unsafe_path"},
		"mode of a link":  {[]tar.Header{{Name: "planted", Typeflag: tar.TypeDir}}, "unsafe_path"},
		"device":          {[]tar.Header{{Name: "d", Typeflag: tar.TypeChar}}, "unsupported_entry"},
		"its own parents": {[]tar.Header{{Name: "a/b/../../c/f"}}, ""},
	} {
		dir := t.TempDir()
		put(t, dir+"/outside/f", "safe")
		os.Mkdir(dir+"/target", 0o755)
		plant(t, "../outside", dir+"/target/planted")
		_, _, err := files.Unpack(dir+"/target", user, archive(t, c.entries...))
		if code(err) != c.code {
			t.Errorf("%s: got %v, want %q", name, err, c.code)
		}
		if content(t, dir+"/outside/f") != "safe" || len(names(t, dir+"/outside")) != 1 || len(names(t, dir)) != 2 || owner(t, dir+"/outside/f") == user {
			t.Errorf("%s: outside has %v, above has %v", name, names(t, dir+"/outside"), names(t, dir))
		}
	}
}

func TestUnpackOverWhatIsThere(t *testing.T) {
	testutil.NeedRoot(t)
	dir := t.TempDir()
	put(t, dir+"/original", "safe")
	put(t, dir+"/target/keep", "kept")
	os.Link(dir+"/original", dir+"/target/f")
	if _, _, err := files.Unpack(dir+"/target", user, archive(t, tar.Header{Name: "f"})); err != nil {
		t.Fatal(err)
	}
	if content(t, dir+"/original") != "safe" || content(t, dir+"/target/f") != "evil" || content(t, dir+"/target/keep") != "kept" {
		t.Errorf("got %q, %q", content(t, dir+"/original"), content(t, dir+"/target/f"))
	}
	if fi, _ := os.Stat(dir + "/target/f"); fi.Mode() != 0o755 {
		t.Errorf("got mode %v", fi.Mode())
	}
	if _, _, err := files.Unpack(dir+"/target", user, strings.NewReader(strings.Repeat("no tar", 200))); code(err) != "invalid_archive" {
		t.Errorf("got %v", err)
	}
	half := archive(t, tar.Header{Name: "g"})
	half.Truncate(513)
	if _, _, err := files.Unpack(dir+"/target", user, half); code(err) != "invalid_archive" {
		t.Errorf("got %v", err)
	}
}
