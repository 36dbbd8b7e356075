package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cubeplexai/cubepod/desktopctl/x11"
	"github.com/cubeplexai/cubepod/internal/apierror"
)

// becomeGuest makes this process the guest's user. Root makes the directories
// that only root can make, and then gives all its rights up for good.
func becomeGuest(cfg Config) error {
	switch uid := os.Geteuid(); uid {
	case guestUID:
	case 0:
		if err := makeDirsAsRoot(cfg); err != nil {
			return err
		}
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(guestGID), syscall.Setuid(guestUID)); err != nil {
			return fmt.Errorf("become uid %d: %w", guestUID, err)
		}
	default:
		return apierror.New(apierror.Forbidden, "not_permitted", "run me as uid %d, or as root: uid %d owns no desktop", guestUID, uid)
	}
	unix.Umask(0o022)
	if err := os.MkdirAll(cfg.RunDir, 0o700); err != nil {
		return apierror.Wrap(err, apierror.Internal, "run_dir", "the run directory %s cannot be made", cfg.RunDir)
	}
	if err := unix.Access(cfg.RunDir, unix.W_OK); err != nil {
		return apierror.Wrap(err, apierror.Internal, "run_dir", "the run directory %s must be writable for uid %d", cfg.RunDir, guestUID)
	}
	return makeSocketDir()
}

// keepFiles makes sure that no child gets a file our caller left open: a
// daemon that holds a caller's pipe keeps it waiting for ever.
func keepFiles() error {
	const first = 3
	err := unix.CloseRange(first, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	// A kernel that is too old for it.
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= first {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// makeDirsAsRoot makes what is missing of the directories the guest's user
// needs and cannot make. What exists is left alone, whoever owns it.
func makeDirsAsRoot(cfg Config) error {
	if err := makeSocketDir(); err != nil {
		return err
	}
	// The parent of the run directory holds files of root's, too.
	if err := makeDirAsRoot(filepath.Dir(cfg.RunDir), 0); err != nil {
		return err
	}
	if err := makeDirAsRoot(cfg.RunDir, guestUID); err != nil {
		return err
	}
	return makeDirAsRoot(cfg.ProfileDir, guestUID)
}

// makeDirAsRoot makes path and its missing parents. The first one it makes for
// the guest's user is the last one it makes: what lies in a directory of
// somebody else's than root's is for its owner to make, since its names may
// lead anywhere.
func makeDirAsRoot(path string, owner int) error {
	path = filepath.Clean(path)
	dir := "/"
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		dir = filepath.Join(dir, name)
		info, err := os.Lstat(dir)
		if err == nil {
			if s, ok := info.Sys().(*syscall.Stat_t); !ok || s.Uid != 0 {
				return nil
			}
			continue
		}
		mode := fs.FileMode(0o755)
		if dir == path && owner != 0 {
			mode = 0o700
		}
		if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if owner != 0 {
			return giveAway(dir, owner)
		}
	}
	return nil
}

// giveAway gives a directory that was just made to owner. It goes through the
// open directory: in a place like /tmp a link could be put there instead.
func giveAway(dir string, owner int) error {
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	defer unix.Close(fd)
	return unix.Fchown(fd, owner, owner)
}

// makeSocketDir makes the directory of the X server's socket, which a fresh
// /tmp lacks and without which the server carries on unreachable.
func makeSocketDir() error {
	dir := filepath.Dir(x11.SocketPath(display))
	if err := os.Mkdir(dir, 0o1777); errors.Is(err, fs.ErrExist) {
		return nil
	} else if err != nil {
		return err
	}
	return os.Chmod(dir, 0o777|fs.ModeSticky) // whatever the umask was
}

// checkRoom reports a full disk before it shows as whatever it breaks first.
func checkRoom(cfg Config) error {
	const (
		forState   = 1 << 20 // pid files and logs
		forProfile = 8 << 20 // a new one takes about as much
	)
	for _, need := range []struct {
		dir   string
		bytes uint64
	}{{cfg.RunDir, forState}, {cfg.ProfileDir, forProfile}} {
		var fs unix.Statfs_t
		if err := unix.Statfs(need.dir, &fs); err != nil {
			continue // it will be made, beside what is there
		}
		if left := fs.Bavail * uint64(fs.Bsize); left < need.bytes {
			return apierror.New(apierror.Unavailable, "disk_full", "the disk of %s is full: %d KiB are left", need.dir, left>>10)
		}
	}
	return nil
}

// environment is all that the desktop's processes find in theirs. Nothing is
// inherited but the locale: a desktop is the same whoever started it, and a
// caller's secrets stay out of the browser.
//
// DBUS_SESSION_BUS_ADDRESS stays out: Chromium then disables the bus itself,
// and a Chromium that has nothing to add to its environment makes the room of
// it its process title, which hides our marker in /proc.
func (c Config) environment() []string {
	return append([]string{
		"HOME=" + guestHome,
		"USER=" + guestUser,
		"LOGNAME=" + guestUser,
		"SHELL=/bin/bash",
		"PATH=" + guestPath,
		"DISPLAY=" + display,
		"XDG_CONFIG_HOME=" + guestHome + "/.config",
		"XDG_CACHE_HOME=" + guestHome + "/.cache",
		"XDG_DATA_HOME=" + guestHome + "/.local/share",
		"XDG_RUNTIME_DIR=" + c.RunDir,
	}, c.Locale...)
}

// export gives the settings to a program of ours.
func (c Config) export() []string {
	return []string{
		"CUBEPOD_RUN_DIR=" + c.RunDir,
		"CUBEPOD_PROFILE_DIR=" + c.ProfileDir,
		"CUBEPOD_RESOLUTION=" + c.Resolution.String(),
		"CUBEPOD_VNC=" + c.VNC,
		"CUBEPOD_CHROMIUM=" + c.Chromium,
		"CUBEPOD_WEB_DIR=" + c.WebDir,
	}
}

// pages is the folder of a page's files.
func (c Config) pages(name string) string { return filepath.Join(c.WebDir, name) }

// findProgram looks for a program of the desktop.
func findProgram(name string) (string, error) {
	for dir := range strings.SplitSeq(guestPath, ":") {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && unix.Access(path, unix.X_OK) == nil {
			return path, nil
		}
	}
	return "", apierror.New(apierror.Unsupported, "program_missing", "%s is not installed in this image", name)
}
