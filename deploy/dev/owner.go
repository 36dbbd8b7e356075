package main

import (
	"fmt"
	"os"
	"strconv"
)

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
