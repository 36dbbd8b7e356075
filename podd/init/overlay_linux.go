package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// overlay makes a root file system whose lower layer is the present one, the
// image's, and whose changes go to dir/upper, and moves this process into it.
// So a whole root file system lives on the volume that dir is on.
//
// Everything mounted below the present root is there in the new one as well,
// except a volume that is mounted on dir itself: changing an upper layer
// behind an overlay's back breaks it. Nothing has changed when an error is
// returned.
func overlay(dir string) (err error) {
	if !filepath.IsAbs(dir) {
		return errors.New("the path is not absolute")
	}
	mounts, err := mountsBelowRoot()
	if err != nil {
		return err
	}
	// A namespace that would pass its mounts on to the host's is left.
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("new mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts private: %w", err)
	}
	upper, work, root := filepath.Join(dir, "upper"), filepath.Join(dir, "work"), filepath.Join(dir, "root")
	if err := makeLayers(dir, upper, work, root); err != nil {
		return err
	}
	layers := "lowerdir=/,upperdir=" + option.Replace(upper) + ",workdir=" + option.Replace(work)
	if err := unix.Mount("overlay", root, "overlay", 0, layers); err != nil {
		return fmt.Errorf("mount overlay: %w", err)
	}
	defer func() {
		if err != nil {
			unix.Unmount(root, unix.MNT_DETACH)
		}
	}()
	for _, at := range mounts {
		if at == filepath.Clean(dir) {
			continue
		}
		if err := bind(at, root+at); err != nil {
			return fmt.Errorf("take %s along: %w", at, err)
		}
	}
	return pivot(root)
}

// option escapes what separates mount options and layers.
var option = strings.NewReplacer(`\`, `\\`, `,`, `\,`, `:`, `\:`)

// makeLayers makes the overlay's directories. The upper one is the root
// directory that the sandbox sees: it looks like the image's.
func makeLayers(dir, upper, work, root string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var image unix.Stat_t
	if err := unix.Stat("/", &image); err != nil {
		return &os.PathError{Op: "stat", Path: "/", Err: err}
	}
	for _, d := range []string{upper, work, root} {
		err := os.Mkdir(d, 0o700)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil && d == upper {
			err = errors.Join(os.Chown(d, int(image.Uid), int(image.Gid)), unix.Chmod(d, image.Mode&0o7777))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bind shows the mount at from, and all below it, at to.
func bind(from, to string) error {
	fi, err := os.Stat(from)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) { // removed in the upper layer
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if fi.IsDir() {
			err = os.Mkdir(to, 0o755)
		} else {
			err = os.WriteFile(to, nil, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")
}

// pivot makes the mount at root this process's root and lets go of the old
// one.
func pivot(root string) error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	// Onto itself: the old root lands on top of the new one and is taken off.
	if err := unix.PivotRoot(".", "."); err != nil {
		return errors.Join(fmt.Errorf("pivot root: %w", err), os.Chdir("/"))
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	return os.Chdir("/")
}

// mountsBelowRoot gives the mount points directly below the root mount, in the
// order in which they were mounted.
func mountsBelowRoot() ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	type mount struct {
		parent int
		at     string
	}
	var all []mount
	root := -1
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20) // overlays of many layers have long lines
	for sc.Scan() {
		// proc(5): id parent major:minor root mountpoint …
		fields := strings.Fields(sc.Text())
		if len(fields) < 5 {
			continue
		}
		id, err1 := strconv.Atoi(fields[0])
		parent, err2 := strconv.Atoi(fields[1])
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		at := unescape(fields[4])
		if at == "/" {
			root = id // the last one covers those before
		}
		all = append(all, mount{parent, at})
	}
	if root < 0 {
		return nil, errors.New("the root directory is no mount")
	}
	var below []string
	for _, m := range all {
		if m.parent == root && m.at != "/" {
			below = append(below, m.at)
		}
	}
	return below, sc.Err()
}

// unescape undoes the octal escapes of mountinfo: space, tab, newline and
// backslash.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace
