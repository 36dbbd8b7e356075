package chrome

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cubeplexai/cubepod/desktopctl/daemon"
)

// InUseError reports that a browser we did not start has the profile open.
type InUseError struct {
	Profile string
	Pid     int
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("profile %s is in use by the browser with pid %d", e.Profile, e.Pid)
}

// NotWritableError reports that the profile, or a file in it, is not ours.
type NotWritableError struct {
	Path string
	Err  error
}

func (e *NotWritableError) Error() string {
	return fmt.Sprintf("profile: %s cannot be written by uid %d (%v): it must belong to that user", e.Path, os.Getuid(), e.Err)
}

// Unwrap returns the cause.
func (e *NotWritableError) Unwrap() error { return e.Err }

// PrepareProfile makes dir ready for a new browser: what a browser that ended
// without cleaning up, here or on another host, left behind is removed or
// repaired, and what would keep any browser from starting is moved out of the
// way. The caller makes sure that nobody else does so at the same time
// and that its own browser is gone.
func PrepareProfile(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return &NotWritableError{dir, err}
	}
	for _, e := range entries {
		if err := e.makeUsable(dir); err != nil {
			return err
		}
	}
	if pid := lockOwner(dir); pid != 0 {
		return &InUseError{dir, pid}
	}
	for _, name := range []string{"SingletonLock", "SingletonCookie", "SingletonSocket", "DevToolsActivePort"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("profile: %w", err)
		}
	}
	return repairPreferences(filepath.Join(dir, "Default", "Preferences"))
}

// lockOwner is the pid of the browser on this host that holds the profile, or
// 0. The lock is a link to "<host>-<pid>"; a lock of another host is stale by
// definition, since a profile is never used by two hosts at once.
func lockOwner(dir string) int {
	target, err := os.Readlink(filepath.Join(dir, "SingletonLock"))
	if err != nil {
		return 0
	}
	dash := strings.LastIndexByte(target, '-')
	if dash < 0 {
		return 0
	}
	host, err := os.Hostname()
	pid, perr := strconv.Atoi(target[dash+1:])
	if err != nil || perr != nil || target[:dash] != host || !isBrowser(pid) {
		return 0
	}
	return pid
}

// isBrowser reports whether pid is a living browser, and not some process that
// was given the pid after a restart. The command line is open to all users and
// that of a zombie is empty.
func isBrowser(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	program, _, _ := strings.Cut(string(b), "\x00")
	name := filepath.Base(program)
	return strings.Contains(name, "chrom") || strings.Contains(name, "headless_shell")
}

// repairPreferences tells the browser that it ended well, so that it does not
// offer to restore pages. The file is replaced, never changed in place, and
// everything else in it stays as it was. One that cannot be read or understood
// is left to Chromium, which resets it.
func repairPreferences(path string) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil //nolint:nilerr // a new profile has none
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	old, err := daemon.ReadFile(path)
	if err != nil {
		return nil //nolint:nilerr // Chromium's to repair
	}
	repaired, ok := withCleanExit(old)
	if !ok {
		return nil
	}
	if err := daemon.ReplaceFile(path, repaired, info.Mode().Perm()); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	return nil
}

// withCleanExit returns preferences whose profile.exit_type is Normal, and
// whether that is a change.
func withCleanExit(preferences []byte) ([]byte, bool) {
	var all, profile map[string]json.RawMessage
	if json.Unmarshal(preferences, &all) != nil || json.Unmarshal(all["profile"], &profile) != nil || profile == nil {
		return nil, false
	}
	normal := json.RawMessage(`"Normal"`)
	if string(profile["exit_type"]) == string(normal) {
		return nil, false
	}
	profile["exit_type"], profile["exited_cleanly"] = normal, json.RawMessage("true")
	raw, err := json.Marshal(profile)
	if err != nil {
		return nil, false
	}
	all["profile"] = raw
	out, err := json.Marshal(all)
	return out, err == nil
}
