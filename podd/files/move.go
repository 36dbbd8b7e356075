package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"golang.org/x/sys/unix"
)

// Move renames from to to. What is at to stays, and is an error, unless
// overwrite is set. To another file system it copies, and to has the whole or
// nothing; what is at from goes last.
func Move(from, to string, overwrite bool) (poddapi.Entry, error) {
	fromDir, fromBase, err := openParent(from, nil)
	if err != nil {
		return poddapi.Entry{}, public(err, from)
	}
	defer unix.Close(fromDir)
	toDir, toBase, err := openParent(to, nil)
	if err != nil {
		return poddapi.Entry{}, public(err, to)
	}
	defer unix.Close(toDir)
	var st unix.Stat_t
	if err := unix.Fstatat(fromDir, fromBase, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return poddapi.Entry{}, public(err, from)
	}
	flags := uint(unix.RENAME_NOREPLACE)
	if overwrite {
		flags = 0
	}
	err = unix.Renameat2(fromDir, fromBase, toDir, toBase, flags)
	if err == unix.EXDEV {
		err = moveAcross(fromDir, fromBase, toDir, toBase, flags)
	}
	if err != nil {
		return poddapi.Entry{}, public(err, to)
	}
	return Stat(to)
}

// moveAcross copies beside the target, renames that, and removes the original.
func moveAcross(fromDir int, fromBase string, toDir int, toBase string, flags uint) error {
	if flags == unix.RENAME_NOREPLACE { // known before anything is copied
		var st unix.Stat_t
		if unix.Fstatat(toDir, toBase, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			return unix.EEXIST
		}
	}
	from, err := os.OpenRoot(byFD(fromDir))
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenRoot(byFD(toDir))
	if err != nil {
		return err
	}
	defer to.Close()
	copied := temporary()
	err = copyTree(from, fromBase, to, copied)
	if err == nil {
		err = unix.Renameat2(toDir, copied, toDir, toBase, flags)
	}
	if err != nil {
		return errors.Join(err, to.RemoveAll(copied))
	}
	return from.RemoveAll(fromBase)
}

// copyTree copies what is at name to as, with owners, modes and times. Links
// are copied as such, several names of one file become files of their own.
func copyTree(from *os.Root, name string, to *os.Root, as string) error {
	fi, err := from.Lstat(name)
	if err != nil {
		return err
	}
	switch mode := fi.Mode(); {
	case mode.IsDir():
		err = copyDir(from, name, to, as)
	case mode.IsRegular():
		err = copyFile(from, name, to, as)
	case mode.Type() == fs.ModeSymlink:
		var target string
		if target, err = from.Readlink(name); err == nil {
			err = to.Symlink(target, as)
		}
	default:
		return apierror.New(apierror.Unsupported, "cross_device", "%s is a socket, pipe or device, which cannot move to another file system", name)
	}
	if err != nil {
		return err
	}
	return describe(to, as, fi)
}

func copyDir(from *os.Root, name string, to *os.Root, as string) error {
	if err := to.Mkdir(as, 0o700); err != nil {
		return err
	}
	d, err := from.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(256)
		for _, n := range names {
			if err := copyTree(from, path.Join(name, n), to, path.Join(as, n)); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func copyFile(from *os.Root, name string, to *os.Root, as string) error {
	in, err := from.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := to.OpenFile(as, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// describe gives the copy at name the owner, mode and time of fi.
func describe(to *os.Root, name string, fi fs.FileInfo) error {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if ok && unix.Geteuid() == 0 {
		if err := to.Lchown(name, int(st.Uid), int(st.Gid)); err != nil {
			return fmt.Errorf("chown: %w", err)
		}
	}
	if fi.Mode().Type() == fs.ModeSymlink {
		return nil
	}
	if err := to.Chmod(name, fi.Mode()); err != nil { // after chown, which takes a set-uid bit away
		return err
	}
	return to.Chtimes(name, fi.ModTime(), fi.ModTime())
}
