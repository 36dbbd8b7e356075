package chrome

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// entry is something in a profile without which Chromium opens it with an
// error dialog, does not end its start, or keeps nothing.
type entry struct {
	name string
	dir  bool
}

// entries are in the order in which they hold each other. A profile is not
// walked: that takes seconds on a network file system.
var entries = []entry{
	{"", true},
	{"Local State", false},
	{"Default", true},
	{"Default/Preferences", false},
	{"Default/Secure Preferences", false},
	{"Default/Cookies", false},
	{"Default/History", false},
	{"Default/Local Storage", true},
}

// makeUsable moves out of the way what has the entry's name but is something
// else, such as a named pipe, and gives its owner back the right to use it. It
// fails with a *NotWritableError when the entry is another user's.
func (e entry) makeUsable(profile string) error {
	path := filepath.Join(profile, e.name)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // to be made, if need be in place of a link to nothing
	}
	wrong := errors.Is(err, unix.ELOOP)
	if err == nil {
		wrong = info.IsDir() != e.dir || !e.dir && !info.Mode().IsRegular()
	}
	if wrong {
		return setAside(path)
	}
	if err == nil {
		err = giveBack(path, info)
	}
	if err == nil {
		err = unix.Access(path, unix.W_OK)
	}
	if err != nil {
		return &NotWritableError{path, err}
	}
	return nil
}

// setAside renames path, in place of what was set aside before.
func setAside(path string) error {
	aside := path + ".broken"
	if err := errors.Join(os.RemoveAll(aside), os.Rename(path, aside)); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	return nil
}

// giveBack lets the owner read and write path if that is us.
func giveBack(path string, info fs.FileInfo) error {
	want := fs.FileMode(0o600)
	if info.IsDir() {
		want = 0o700
	}
	mode := info.Mode().Perm()
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() || mode&want == want {
		return nil
	}
	return os.Chmod(path, mode|want)
}
