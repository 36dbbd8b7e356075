// Package files reads and writes the sandbox's files for callers of podd.
//
// podd is root and the paths lead through directories that the sandbox's user
// owns, so a path is walked one descriptor at a time. Calls that change
// something follow a symbolic link only when root made it: a link that the
// user planted leads nowhere.
package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"golang.org/x/sys/unix"
)

// Owner is who new files belong to.
type Owner struct{ UID, GID uint32 }

// maxLinks is how many symbolic links one path may lead through.
const maxLinks = 40

// walk is a position in the directory tree: the descriptors from / down to it.
type walk struct {
	dirs  []int
	links int
	// make creates missing directories for owner.
	make  bool
	owner Owner
}

// openParent walks to the directory that path's last element is in and gives
// it with that element's name. The caller closes it. Missing directories are
// made for owner when it is not nil.
func openParent(path string, owner *Owner) (dir int, base string, err error) {
	if err := valid(path); err != nil {
		return -1, "", err
	}
	path = filepath.Clean(path)
	if path == "/" {
		return -1, "", apierror.New(apierror.Invalid, "invalid_path", "the path is the root directory")
	}
	dir, err = openDir(filepath.Dir(path), owner)
	return dir, filepath.Base(path), err
}

// openDir walks to a directory; see [openParent].
func openDir(path string, owner *Owner) (int, error) {
	if err := valid(path); err != nil {
		return -1, err
	}
	w := &walk{}
	if owner != nil {
		w.make, w.owner = true, *owner
	}
	defer w.close()
	if err := w.root(); err != nil {
		return -1, err
	}
	if err := w.follow(filepath.Clean(path)); err != nil {
		return -1, err
	}
	// Give the last one away, opened for use: the walk needs no permission to
	// read on its way.
	return unix.Openat(w.top(), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

func valid(path string) error {
	if !filepath.IsAbs(path) || strings.Contains(path, "\x00") {
		return apierror.New(apierror.Invalid, "invalid_path", "the path is empty, not absolute, or has NUL in it")
	}
	return nil
}

func (w *walk) top() int { return w.dirs[len(w.dirs)-1] }

func (w *walk) close() {
	for _, fd := range w.dirs {
		unix.Close(fd)
	}
	w.dirs = nil
}

// root goes to the top of the tree.
func (w *walk) root() error {
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	w.close()
	w.dirs = []int{fd}
	return nil
}

func (w *walk) follow(path string) error {
	for name := range strings.SplitSeq(path, "/") {
		if err := w.step(name); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) step(name string) error {
	switch name {
	case "", ".":
		return nil
	case "..":
		if n := len(w.dirs); n > 1 {
			unix.Close(w.top())
			w.dirs = w.dirs[:n-1]
		}
		return nil
	}
	const flags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(w.top(), name, flags|unix.O_DIRECTORY, 0)
	if err == unix.ENOENT && w.make {
		fd, err = w.mkdir(name)
	}
	switch err {
	case nil:
		w.dirs = append(w.dirs, fd)
		return nil
	case unix.ENOTDIR, unix.ELOOP:
		return w.link(name)
	}
	return &os.PathError{Op: "open", Path: name, Err: err}
}

func (w *walk) mkdir(name string) (int, error) {
	err := unix.Mkdirat(w.top(), name, 0o755)
	if err != nil && err != unix.EEXIST {
		return -1, err
	}
	fd, openErr := unix.Openat(w.top(), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if openErr != nil || err == unix.EEXIST {
		return fd, openErr
	}
	if err := chown(fd, w.owner); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// link goes where the symbolic link name leads.
func (w *walk) link(name string) error {
	fd, err := unix.Openat(w.top(), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return apierror.New(apierror.Invalid, "not_directory", "%q in the path is no directory", name)
	}
	if unix.Geteuid() == 0 && st.Uid != 0 {
		return apierror.New(apierror.Forbidden, "symlink_refused", "%q in the path is a symbolic link that is not root's", name)
	}
	if w.links++; w.links > maxLinks {
		return apierror.New(apierror.Invalid, "invalid_path", "the path leads through too many symbolic links")
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return err
	}
	to := string(buf[:n])
	if filepath.IsAbs(to) {
		if err := w.root(); err != nil {
			return err
		}
	}
	return w.follow(to)
}

// chown gives what fd names to o. A podd that is not root can give nothing
// away.
func chown(fd int, o Owner) error {
	if unix.Geteuid() != 0 {
		return nil
	}
	if err := unix.Fchownat(fd, "", int(o.UID), int(o.GID), unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("chown: %w", err)
	}
	return nil
}

// byFD is a path to what fd names, for calls that know paths only.
func byFD(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// public turns an error of the file system into the caller's.
func public(err error, path string) error {
	if _, ok := errors.AsType[*apierror.Error](err); err == nil || ok {
		return err
	}
	for _, c := range []struct {
		errno  error
		kind   apierror.Kind
		code   string
		reason string
	}{
		{unix.ENOENT, apierror.NotFound, "file_not_found", "does not exist"},
		{unix.ENOTDIR, apierror.Invalid, "not_directory", "leads through something that is no directory"},
		{unix.EISDIR, apierror.Invalid, "is_directory", "is a directory"},
		{unix.ELOOP, apierror.Invalid, "invalid_path", "leads through too many symbolic links"},
		{unix.ENAMETOOLONG, apierror.Invalid, "invalid_path", "is too long"},
		{unix.EINVAL, apierror.Invalid, "invalid_path", "cannot be used so"},
		{unix.EEXIST, apierror.Conflict, "exists", "exists"},
		{unix.ENOTEMPTY, apierror.Conflict, "not_empty", "is not empty"},
		{unix.EBUSY, apierror.Conflict, "busy", "is in use"},
		{unix.EACCES, apierror.Forbidden, "permission_denied", "is not podd's to use"},
		{unix.EPERM, apierror.Forbidden, "permission_denied", "is not podd's to use"},
		{unix.EROFS, apierror.Forbidden, "read_only", "is on a read-only file system"},
		{unix.ENOSPC, apierror.NoSpace, "no_space", "does not fit: the disk is full"},
		{unix.EDQUOT, apierror.NoSpace, "no_space", "does not fit: the quota is used up"},
		{unix.EFBIG, apierror.NoSpace, "no_space", "is too large for the file system"},
	} {
		if errors.Is(err, c.errno) {
			return apierror.Wrap(err, c.kind, c.code, "%s %s", path, c.reason)
		}
	}
	return fmt.Errorf("%s: %w", path, err)
}
