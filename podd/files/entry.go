package files

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"golang.org/x/sys/unix"
)

// Open opens a regular file for reading.
func Open(path string) (*os.File, os.FileInfo, error) {
	if err := valid(path); err != nil {
		return nil, nil, err
	}
	path = filepath.Clean(path)
	// Without O_NONBLOCK a named pipe would make it wait for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, notRegular(err, path)
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = notRegular(nil, path)
	}
	if err != nil {
		f.Close()
		return nil, nil, public(err, path)
	}
	return f, fi, nil
}

// notRegular is the error of what is there and cannot be read as a file.
func notRegular(err error, path string) error {
	if fi, statErr := os.Stat(path); err == nil || statErr == nil && !fi.Mode().IsRegular() {
		return apierror.Wrap(err, apierror.Invalid, "not_regular", "%s is no regular file", path)
	}
	return absent(err, path)
}

// absent is [public] for calls that look at what is at path: below a file
// there is nothing.
func absent(err error, path string) error {
	if errors.Is(err, unix.ENOTDIR) {
		err = unix.ENOENT
	}
	return public(err, path)
}

// Stat describes what is at path; a symbolic link itself.
func Stat(path string) (poddapi.Entry, error) {
	if err := valid(path); err != nil {
		return poddapi.Entry{}, err
	}
	fi, err := os.Lstat(filepath.Clean(path))
	if err != nil {
		return poddapi.Entry{}, absent(err, path)
	}
	return entry(filepath.Clean(path), fi), nil
}

// List describes what is in the directory at path, by name.
func List(path string) ([]poddapi.Entry, error) {
	if err := valid(path); err != nil {
		return nil, err
	}
	d, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, public(err, path)
	}
	defer d.Close()
	entries := []poddapi.Entry{}
	for {
		infos, err := d.Readdir(1024) // what vanishes meanwhile is left out
		for _, fi := range infos {
			entries = append(entries, entry(filepath.Join(path, fi.Name()), fi))
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, public(err, path)
		}
	}
	slices.SortFunc(entries, func(a, b poddapi.Entry) int { return strings.Compare(a.Name, b.Name) })
	return entries, nil
}

func entry(path string, fi os.FileInfo) poddapi.Entry {
	e := poddapi.Entry{Name: filepath.Base(path), Path: path, IsDir: fi.IsDir(), Size: fi.Size(), MTime: fi.ModTime().UTC()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		e.Mode, e.UID, e.GID = fmt.Sprintf("%04o", st.Mode&0o7777), st.Uid, st.Gid
	}
	if fi.Mode().Type() == os.ModeSymlink {
		e.Link, _ = os.Readlink(path)
	}
	return e
}

// Mkdir makes a directory, and missing ones above it. One that is there
// already stays as it is.
func Mkdir(path string, owner Owner, mode uint32) (poddapi.Entry, error) {
	dir, base, err := openParent(path, &owner)
	if err != nil {
		return poddapi.Entry{}, public(err, path)
	}
	defer unix.Close(dir)
	switch err := unix.Mkdirat(dir, base, 0o700); err {
	case nil:
		fd, err := unix.Openat(dir, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return poddapi.Entry{}, public(err, path)
		}
		defer unix.Close(fd)
		if err := chown(fd, owner); err != nil {
			return poddapi.Entry{}, public(err, path)
		}
		if err := unix.Fchmod(fd, mode&0o7777); err != nil {
			return poddapi.Entry{}, public(err, path)
		}
	case unix.EEXIST:
		if fi, err := os.Stat(path); err == nil && !fi.IsDir() {
			return poddapi.Entry{}, public(unix.EEXIST, path)
		}
	default:
		return poddapi.Entry{}, public(err, path)
	}
	return Stat(path)
}

// Remove deletes what is at path; a symbolic link itself. A directory that is
// not empty goes only when recursive is set.
func Remove(path string, recursive bool) error {
	dir, base, err := openParent(path, nil)
	if err != nil {
		return public(err, path)
	}
	defer unix.Close(dir)
	if err = unix.Unlinkat(dir, base, 0); err == unix.EISDIR {
		err = unix.Unlinkat(dir, base, unix.AT_REMOVEDIR)
	}
	if err == unix.ENOTEMPTY && recursive {
		var root *os.Root
		if root, err = os.OpenRoot(byFD(dir)); err == nil {
			defer root.Close()
			err = root.RemoveAll(base)
		}
	}
	return public(err, path)
}
