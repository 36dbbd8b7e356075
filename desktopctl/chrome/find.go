package chrome

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// candidates are the browsers we look for, best first. Debian's wrapper
// /usr/bin/chromium comes after the program it runs: the wrapper only adds
// flags of its own, and a shell's time.
var candidates = []string{
	"/usr/lib/chromium/chromium",
	"/usr/bin/chromium",
	"/usr/bin/chromium-browser",
	"/opt/google/chrome/chrome",
	"/usr/bin/google-chrome",
	"/opt/cubepod/browsers/chromium-*/chrome-linux*/chrome", // Playwright's, too
	"/ms-playwright/chrome",
	"/ms-playwright/chromium-*/chrome-linux*/chrome",
}

// ErrSnap reports that the only browser there is is Ubuntu's package that
// installs a snap, which cannot run in a container.
var ErrSnap = errors.New("it starts a snap, which cannot run in a sandbox; install Debian's chromium, Google Chrome or a Playwright Chromium")

// Find returns the path of the browser to run: named, when it is not empty,
// else the best one installed.
func Find(named string) (string, error) {
	if named != "" {
		if err := runnable(named); err != nil {
			return "", fmt.Errorf("browser %s: %w", named, err)
		}
		return named, nil
	}
	var snap error
	for _, pattern := range candidates {
		paths, _ := filepath.Glob(pattern)
		slices.Sort(paths)
		for _, path := range slices.Backward(paths) { // the newest of Playwright's
			err := runnable(path)
			if err == nil {
				return path, nil
			}
			if errors.Is(err, ErrSnap) {
				snap = fmt.Errorf("browser %s: %w", path, err)
			}
		}
	}
	if snap != nil {
		return "", snap
	}
	return "", errors.New("no Chromium found")
}

// runnable reports why path cannot be run.
func runnable(path string) error {
	if err := unix.Access(path, unix.X_OK); err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	if strings.HasPrefix(real, "/snap/") || filepath.Base(real) == "snap" {
		return ErrSnap
	}
	f, err := os.Open(real)
	if err != nil {
		return nil // may be executable without being readable
	}
	defer f.Close()
	head := make([]byte, 4096)
	n, _ := f.Read(head)
	if head = head[:n]; bytes.HasPrefix(head, []byte("#!")) && bytes.Contains(head, []byte("/snap/")) {
		return ErrSnap
	}
	return nil
}
