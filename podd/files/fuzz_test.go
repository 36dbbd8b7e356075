package files_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/podd/files"
)

// ground is a directory to unpack into, target, which has a planted link in
// it, beside one that must stay as it is.
func ground(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	put(t, dir+"/outside/f", "safe")
	if err := os.Mkdir(dir+"/target", 0o755); err != nil {
		t.Fatal(err)
	}
	plant(t, "../outside", dir+"/target/planted")
	return dir
}

// unpack must leave everything but target alone, and say what is wrong.
func unpack(t *testing.T, dir string, r io.Reader) {
	t.Helper()
	before, err := os.Stat(dir + "/outside/f")
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = files.Unpack(dir+"/target", user, r)
	if e := apierror.From(err); err != nil && (e.Status() >= 500 || e.Detail == "") {
		t.Errorf("got %v", err)
	}
	after, err := os.Stat(dir + "/outside/f")
	if err != nil || !os.SameFile(before, after) || !after.ModTime().Equal(before.ModTime()) || after.Mode() != before.Mode() ||
		content(t, dir+"/outside/f") != "safe" || len(names(t, dir+"/outside")) != 1 || len(names(t, dir)) != 2 ||
		owner(t, dir+"/outside/f") == user || owner(t, dir+"/outside") == user {
		t.Errorf("outside has %v, above has %v", names(t, dir+"/outside"), names(t, dir))
	}
}

// FuzzUnpack unpacks anything.
func FuzzUnpack(f *testing.F) {
	testutil.NeedRoot(f)
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	tw.WriteHeader(&tar.Header{Name: "dir/", Typeflag: tar.TypeDir, Mode: 0o755})
	tw.WriteHeader(&tar.Header{Name: "dir/f", Typeflag: tar.TypeReg, Mode: 0o4755, Size: 4})
	tw.Write([]byte("body"))
	tw.WriteHeader(&tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "../outside"})
	tw.WriteHeader(&tar.Header{Name: strings.Repeat("long/", 60) + "f", Typeflag: tar.TypeReg, Format: tar.FormatPAX, PAXRecords: map[string]string{"a.b": "c"}})
	tw.Close()
	f.Add(b.Bytes())
	f.Add(b.Bytes()[:700])
	f.Add([]byte{})
	f.Add(make([]byte, 1024))
	f.Fuzz(func(t *testing.T, data []byte) { unpack(t, ground(t), bytes.NewReader(data)) })
}

// FuzzUnpackEntries unpacks well-formed archives of any entries, given one a
// line: the type, the name and the link's target.
func FuzzUnpackEntries(f *testing.F) {
	testutil.NeedRoot(f)
	for _, seed := range []string{
		"0 ../f -", "0 /f -", "0 a/../../f -", "2 l ../outside\n0 l/f -", "2 l ../outside/f\n0 l -", "2 a ..\n2 b a/outside\n0 b/f -",
		"1 h ../outside/f\n0 h -", "2 l ../outside\n1 h l/f", "0 planted/f -", "5 planted -", "5 planted/ -", "1 planted/f a", "3 d -", "6 p -",
		"0 a/b/../../c/f -", "0 f -\n5 f/ -", "5 d -\n0 d -", "2 . ..", "5 ./ -", "1 h h", "0 f -\n1 h f\n2 h f\n0 h/x -", "2 l l\n0 l/f -", "g x -",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, entries string) {
		var b bytes.Buffer
		tw := tar.NewWriter(&b)
		for line := range strings.SplitSeq(entries, "\n") {
			h := tar.Header{Mode: 0o6755}
			if _, err := fmt.Sscanf(line, "%c %s %s", &h.Typeflag, &h.Name, &h.Linkname); err != nil {
				return
			}
			if h.Typeflag == tar.TypeReg {
				h.Size, h.Linkname = 4, ""
			}
			if tw.WriteHeader(&h) != nil {
				return // no archive can say that
			}
			if h.Size > 0 {
				io.WriteString(tw, "evil")
			}
		}
		if tw.Close() != nil {
			return
		}
		unpack(t, ground(t), &b)
	})
}
