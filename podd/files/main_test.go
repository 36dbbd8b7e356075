package files_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/podd/files"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var user = files.Owner{UID: 1000, GID: 1000}

func code(err error) string {
	if err == nil {
		return ""
	}
	return apierror.From(err).WireCode()
}

// put makes a file for the test itself.
func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return string(data)
}

func owner(t *testing.T, path string) (o files.Owner) {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return files.Owner{UID: st.Uid, GID: st.Gid}
}

// plant makes a symbolic link that belongs to the user.
func plant(t *testing.T, to, at string) {
	t.Helper()
	if err := os.Symlink(to, at); err != nil {
		t.Fatal(err)
	}
	if err := os.Lchown(at, 1000, 1000); err != nil {
		t.Fatal(err)
	}
}

func names(t *testing.T, dir string) (ns []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		ns = append(ns, e.Name())
	}
	return ns
}
