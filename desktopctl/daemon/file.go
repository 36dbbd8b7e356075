package daemon

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// maxFile bounds what ReadFile reads: more than any file of ours has, and a
// browser's preferences too.
const maxFile = 16 << 20

// ReadFile reads a file in a place where anybody may have put anything. Unlike
// os.ReadFile it never waits, as for the writer of a named pipe, and is done
// soon: what is no regular file, is a link or is huge is an error.
func ReadFile(path string) ([]byte, error) {
	f, info, err := openRegular(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info.Size() > maxFile {
		return nil, &fs.PathError{Op: "read", Path: path, Err: unix.EFBIG}
	}
	return io.ReadAll(io.LimitReader(f, maxFile)) // it may grow meanwhile
}

// openRegular opens a regular file that is there, and nothing else.
func openRegular(path string, flags int) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, flags|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// ReplaceFile writes a file, whole or not at all, in place of whatever has its
// name.
func ReplaceFile(path string, data []byte, mode fs.FileMode) error {
	tmp := path + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	// Exclusive, it cannot be a pipe that waits nor a link to somewhere else.
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp)
	}
	return err
}

// rename is os.Rename, but also in place of a directory.
func rename(from, to string) error {
	if info, err := os.Lstat(to); err == nil && info.IsDir() {
		if err := os.RemoveAll(to); err != nil {
			return err
		}
	}
	return os.Rename(from, to)
}
