package chrome_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubeplexai/cubepod/desktopctl/chrome"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

func TestFlags(t *testing.T) {
	base := chrome.Options{Profile: "/p", Port: 9223, Width: 800, Height: 600, URL: "about:blank"}
	flags := chrome.Flags(base)
	if n := strings.Count(strings.Join(flags, " "), "--disable-features="); n != 1 {
		t.Errorf("%d --disable-features, want 1: only the last counts", n)
	}
	if last := flags[len(flags)-1]; last != "about:blank" {
		t.Errorf("last is %q, want the page", last)
	}
	for _, want := range []string{"--user-data-dir=/p", "--remote-debugging-port=9223", "--window-size=800,600", "--password-store=basic"} {
		if !has(flags, want) {
			t.Errorf("no %s in %q", want, flags)
		}
	}
	if has(flags, "--no-sandbox") || has(flags, "--disable-dev-shm-usage") {
		t.Errorf("weaker than asked for: %q", flags)
	}
	base.NoSandbox, base.NoSharedMemory = true, true
	if flags = chrome.Flags(base); !has(flags, "--no-sandbox") || !has(flags, "--disable-dev-shm-usage") {
		t.Errorf("not what was asked for: %q", flags)
	}
}

func has(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	real := script("browser", "#!/bin/sh\nexec /usr/lib/chromium/chromium \"$@\"\n")
	stub := script("stub", "#!/bin/sh\nif ! [ -x /snap/bin/chromium ]; then exit 1; fi\nexec /snap/bin/chromium \"$@\"\n")
	data := script("data", "no program")
	if err := os.Chmod(data, 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := chrome.Find(real); got != real || err != nil {
		t.Errorf("a wrapper: %q, %v", got, err)
	}
	if _, err := chrome.Find(stub); !errors.Is(err, chrome.ErrSnap) {
		t.Errorf("a snap: %v, want ErrSnap", err)
	}
	for _, path := range []string{data, filepath.Join(dir, "none")} {
		if got, err := chrome.Find(path); err == nil {
			t.Errorf("%s: found %q", path, got)
		}
	}
}

// links makes the profile's lock, socket and cookie as a browser does.
func links(t *testing.T, profile, owner string) {
	t.Helper()
	for _, name := range []string{"SingletonLock", "SingletonCookie", "SingletonSocket"} {
		if err := os.Symlink(owner, filepath.Join(profile, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// sleeper runs a process with that name and gives its pid.
func sleeper(t *testing.T, name string) int {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(testutil.NeedProgram(t, "sleep"), path); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd.Process.Pid
}

func TestPrepareProfileRemovesStaleLocks(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	owners := map[string]string{
		"another host":          fmt.Sprintf("not-%s-%d", host, sleeper(t, "chromium")),
		"a dead process":        host + "-2147483000",
		"a pid that was reused": fmt.Sprintf("%s-%d", host, sleeper(t, "cat")),
		"nonsense":              "nonsense",
	}
	for name, owner := range owners {
		profile := filepath.Join(t.TempDir(), "profile")
		if err := os.Mkdir(profile, 0o700); err != nil {
			t.Fatal(err)
		}
		links(t, profile, owner)
		if err := os.WriteFile(filepath.Join(profile, "DevToolsActivePort"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := chrome.PrepareProfile(profile); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if left, _ := os.ReadDir(profile); len(left) != 0 {
			t.Errorf("%s: %v left", name, left)
		}
	}
}

func TestPrepareProfileKeepsLiveLocks(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	profile := t.TempDir()
	pid := sleeper(t, "chromium")
	links(t, profile, fmt.Sprintf("%s-%d", host, pid))
	err = chrome.PrepareProfile(profile)
	if inUse, ok := errors.AsType[*chrome.InUseError](err); !ok || inUse.Pid != pid {
		t.Errorf("%v, want InUseError of %d", err, pid)
	}
	if left, _ := os.ReadDir(profile); len(left) != 3 {
		t.Errorf("%v left, want the lock as it was", left)
	}
}

func TestPrepareProfileRepairsPreferences(t *testing.T) {
	tests := []struct{ name, before, after string }{
		{"crashed", `{"a":1.0,"profile":{"exit_type":"Crashed","exited_cleanly":false,"name":"<x>"}}`, `{"a":1.0,"profile":{"exit_type":"Normal","exited_cleanly":true,"name":"\u003cx\u003e"}}`},
		{"never ended", `{"profile":{"name":"x"}}`, `{"profile":{"exit_type":"Normal","exited_cleanly":true,"name":"x"}}`},
		{"ended well", `{ "profile": {"exit_type": "Normal"} }`, `{ "profile": {"exit_type": "Normal"} }`},
		{"cut short", `{"profile":{"exit_ty`, `{"profile":{"exit_ty`},
		{"no profile", `{}`, `{}`},
		{"another shape", `{"profile":[]}`, `{"profile":[]}`},
		{"empty", ``, ``},
	}
	for _, tt := range tests {
		profile := t.TempDir()
		path := filepath.Join(profile, "Default", "Preferences")
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(tt.before), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := chrome.PrepareProfile(profile); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if got, err := os.ReadFile(path); string(got) != tt.after || err != nil {
			t.Errorf("%s: got %s, %v, want %s", tt.name, got, err, tt.after)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: mode %v, %v", tt.name, info.Mode(), err)
		}
	}
}

// A profile stays usable whatever is where its files go.
func TestPrepareProfileMovesAsideWhatIsInTheWay(t *testing.T) {
	pipe := func(path string) error { return unix.Mkfifo(path, 0o644) }
	dir := func(path string) error { return os.MkdirAll(filepath.Join(path, "full", "er"), 0o755) }
	loop := func(path string) error { return os.Symlink(path, path) }
	file := func(path string) error { return os.WriteFile(path, []byte("x"), 0o644) }
	tests := []struct {
		name  string
		put   func(path string) error
		gone  bool // is removed, not set aside
		files []string
	}{
		{"a pipe", pipe, false, []string{"Local State", "Default", "Default/Preferences", "Default/Cookies", "Default/Local Storage"}},
		{"a directory", dir, false, []string{"Local State", "Default/Preferences", "Default/History"}},
		{"a link to itself", loop, false, []string{"Local State", "Default", "Default/Preferences"}},
		{"a file", file, false, []string{"Default", "Default/Local Storage"}},
		{"a directory", dir, true, []string{"SingletonLock", "SingletonCookie", "SingletonSocket", "DevToolsActivePort"}},
		{"a pipe", pipe, true, []string{"SingletonLock", "SingletonCookie", "SingletonSocket", "DevToolsActivePort"}},
	}
	for _, tt := range tests {
		for _, file := range tt.files {
			t.Run(tt.name+" as "+file, func(t *testing.T) {
				profile := t.TempDir()
				path := filepath.Join(profile, file)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), tt.put(path)); err != nil {
					t.Fatal(err)
				}
				for range 2 { // the second is set aside in place of the first
					if err := chrome.PrepareProfile(profile); err != nil {
						t.Fatal(err)
					}
					if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
						t.Errorf("still there, %v", err)
					}
					if _, err := os.Lstat(path + ".broken"); (err != nil) != tt.gone {
						t.Errorf("set aside: %v", err)
					}
					if err := tt.put(path); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	}
}

// Links are followed where Chromium follows them, and kept.
func TestPrepareProfileKeepsLinks(t *testing.T) {
	profile, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "preferences")
	link := filepath.Join(profile, "Default", "Preferences")
	err := errors.Join(os.WriteFile(elsewhere, []byte(`{"profile":{}}`), 0o600), os.Mkdir(filepath.Dir(link), 0o700), os.Symlink(elsewhere, link))
	if err != nil {
		t.Fatal(err)
	}
	if err := chrome.PrepareProfile(profile); err != nil {
		t.Fatal(err)
	}
	if target, err := os.Readlink(link); target != elsewhere || err != nil {
		t.Errorf("link to %q, %v", target, err)
	}
	if b, err := os.ReadFile(elsewhere); !strings.Contains(string(b), "Normal") || err != nil {
		t.Errorf("preferences %s, %v", b, err)
	}
}

// What its owner has locked is opened again.
func TestPrepareProfileGivesBackRights(t *testing.T) {
	profile := filepath.Join(t.TempDir(), "profile")
	if err := chrome.PrepareProfile(profile); err != nil {
		t.Fatal(err)
	}
	folder, file := filepath.Join(profile, "Default"), filepath.Join(profile, "Default", "Preferences")
	err := errors.Join(os.Mkdir(folder, 0o700), os.WriteFile(file, []byte(`{"profile":{}}`), 0o600),
		os.Chmod(file, 0), os.Chmod(folder, 0), os.Chmod(profile, 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := chrome.PrepareProfile(profile); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{profile: 0o700, folder: 0o700, file: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v", path, info.Mode(), err)
		}
	}
}

func TestSamePage(t *testing.T) {
	tests := []struct {
		a, b string
		want bool
	}{
		{"http://x/", "http://x", true},
		{"http://x/a/", "http://x/a", true},
		{"about:blank", "about:blank", true},
		{"HTTP://X/A b", "http://x/A%20b", true},
		{"http://x:80/a/../b", "http://x/b", true},
		{"https://x:443", "https://x/", true},
		{"http://x:443", "http://x/", false},
		{"http://x/a", "http://x/A", false},
		{"data:text/html,<p> a", "data:text/html,<p>%20a", true},
		{"http://x/a", "http://x/a?b", false},
		{"http://x", "https://x", false},
	}
	for _, tt := range tests {
		if got := chrome.SamePage(tt.a, tt.b); got != tt.want {
			t.Errorf("SamePage(%q, %q) = %v", tt.a, tt.b, got)
		}
	}
}
