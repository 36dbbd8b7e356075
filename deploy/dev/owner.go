package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// lockData makes the data directory and takes it for this process, before any
// file in it is touched.
func lockData(data string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Join(data, "logs"), 0o700); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	if err := errors.Join(giveToCaller(data), giveToCaller(filepath.Join(data, "logs"))); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(data, "dev.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder := make([]byte, 20)
		n, _ := f.Read(holder)
		f.Close()
		return nil, fmt.Errorf("%s is in use by another make run, process %s: end that one, or choose another directory with --data", data, holder[:n])
	}
	// Who holds it, for the message above; the lock itself is what counts.
	_ = f.Truncate(0)
	_, _ = f.WriteAt(strconv.AppendInt(nil, int64(os.Getpid()), 10), 0)
	return func() { f.Close() }, nil
}

// giveToCaller hands a file or directory to the person who called sudo, so
// that dev.json and the logs can be read without it. Keys and sandboxes stay
// root's.
func giveToCaller(path string) error {
	uid, err := strconv.Atoi(os.Getenv("SUDO_UID"))
	if err != nil || os.Geteuid() != 0 {
		return nil // not under sudo
	}
	gid, err := strconv.Atoi(os.Getenv("SUDO_GID"))
	if err != nil {
		return fmt.Errorf("SUDO_GID: %w", err)
	}
	return os.Chown(path, uid, gid)
}
