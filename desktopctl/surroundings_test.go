package main_test

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

// TestSettings are those of an image, and of a caller.
func TestSettings(t *testing.T) {
	if !enter(t) {
		return
	}
	t.Setenv("CUBEPOD_RESOLUTION", "1280x900x24")
	t.Setenv("CUBEPOD_PROFILE_DIR", "/tmp/elsewhere/profile")
	if r := start(t); r.Resolution != "1280x900x24" {
		t.Errorf("resolution %s", r.Resolution)
	}
	if _, err := os.Stat("/tmp/elsewhere/profile/Default"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(profile + "/Default"); err == nil {
		t.Error("the profile is in two places")
	}
	ctl("stop")
	if _, r, _ := ctl("status"); r.Resolution != "1280x900x24" {
		t.Errorf("resolution of a stopped stack: %s", r.Resolution)
	}
	for _, bad := range [][2]string{{"CUBEPOD_RESOLUTION", "large"}, {"CUBEPOD_VNC", "nonesuch"}, {"CUBEPOD_RUN_DIR", "here"}} {
		t.Run(bad[0], func(t *testing.T) {
			t.Setenv(bad[0], bad[1])
			if code, r, output := ctl("status"); code != 1 || !strings.HasPrefix(r.Error, "invalid_") {
				t.Errorf("exit code %d, %s", code, output)
			}
		})
	}
}

// TestSurroundings: nothing about the caller's environment matters.
func TestSurroundings(t *testing.T) {
	if !enter(t) {
		return
	}
	s := newSite(t)
	for _, name := range []string{"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "PATH", "LANG", "DISPLAY"} {
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	start(t, "--url", s.URL+"/direct")
	if got := s.next(t); got != "/direct " {
		t.Errorf("asked for %q", got)
	}
	if _, r, output := ctl("status"); r.Status != "running" {
		t.Errorf("status: %s", output)
	}
}

// A full disk is said to be one.
func TestDiskFull(t *testing.T) {
	if !enterAsRoot(t) {
		return
	}
	for _, dir := range []string{runDir, profile} {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chown(dir, 1000, 1000)); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16k,uid=1000,gid=1000,mode=0700"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				ctl("stop")
				if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
					t.Error(err)
				}
			})
			if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 64<<10), 0o644); err == nil {
				t.Fatal("the disk is not full")
			}
			if code, r, output := ctl("start"); code != 1 || r.Error != "disk_full" || !strings.Contains(r.Message, dir) {
				t.Errorf("exit code %d, %s", code, output)
			}
		})
	}
}

// A desktop that runs is not in need of room.
func TestDiskFullLater(t *testing.T) {
	if !enterAsRoot(t) {
		return
	}
	for _, dir := range []string{runDir, profile} {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chown(dir, 1000, 1000)); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64m,uid=1000,gid=1000,mode=0700"); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctl("stop")
		for _, dir := range []string{runDir, profile} {
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}
	})
	before := start(t)
	for _, dir := range []string{runDir, profile} {
		if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 128<<20), 0o644); err == nil {
			t.Fatal("the disk is not full")
		}
	}
	if after := start(t); !maps.Equal(before.Pids, after.Pids) {
		t.Errorf("pids %v became %v", before.Pids, after.Pids)
	}
}

// Root makes nothing where a link of the guest's leads.
func TestRootFollowsNoLink(t *testing.T) {
	if !enterAsRoot(t) {
		return
	}
	victim, home := t.TempDir(), "/home/cubeplex" // the one is root's
	if err := errors.Join(os.MkdirAll(home, 0o755), os.Chown(home, 1000, 1000),
		os.RemoveAll(home+"/.config"), os.Symlink(victim, home+"/.config"), os.Lchown(home+"/.config", 1000, 1000)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(home + "/.config") })
	if code, r, output := ctlAs(0, "start"); code != 1 || r.Error != "profile_not_writable" {
		t.Errorf("exit code %d, %s", code, output)
	}
	ctl("stop")
	if made, err := os.ReadDir(victim); len(made) > 0 || err != nil {
		t.Errorf("made %v, %v", made, err)
	}
}

// A fresh /tmp lacks the directory of the X server's socket.
func TestSocketDirectory(t *testing.T) {
	if !enterAsRoot(t) {
		return
	}
	if err := errors.Join(os.MkdirAll(runDir, 0o755), os.Chown(runDir, 1000, 1000)); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []int{0, 1000} { // root makes the guest's home as well
		if err := os.RemoveAll("/tmp/.X11-unix"); err != nil {
			t.Fatal(err)
		}
		if code, r, output := ctlAs(uid, "start"); code != 0 || r.Status != "running" {
			t.Errorf("as uid %d: exit code %d, %s", uid, code, output)
		}
		ctl("stop")
	}
}

// What a browser had written to half is no reason not to start, nor to bother
// people: the page is all there is to see.
func TestHalfWrittenProfile(t *testing.T) {
	if !enter(t) {
		return
	}
	s := newSite(t)
	blue := func() (n int) {
		screen := screenshot(t)
		for y := range screen.Bounds().Dy() {
			for x := range screen.Bounds().Dx() {
				if r, g, b, _ := screen.At(x, y).RGBA(); r == 0 && g == 0 && b == 0xffff {
					n++
				}
			}
		}
		return n
	}
	start(t, "--url", s.URL+"/page")
	var area int
	testutil.Eventually(t, "the page", func() bool { area = blue(); return area > 0 })
	for _, name := range []string{"Default/Preferences", "Local State"} {
		ctl("stop")
		path := filepath.Join(profile, name)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b[:len(b)/2], 0o600); err != nil {
			t.Fatal(err)
		}
		start(t, "--url", s.URL+"/page")
		testutil.Eventually(t, "the page, after half of "+name, func() bool { return blue() == area })
		if n := len(pages(t)); n != 1 {
			t.Errorf("%s: %d tabs", name, n)
		}
	}
}

func TestHelp(t *testing.T) {
	out, err := exec.Command(program, "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"CUBEPOD_RUN_DIR", "CUBEPOD_PROFILE_DIR", "CUBEPOD_RESOLUTION", "CUBEPOD_VNC", "/etc/cubepod/desktop.conf"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("--help does not tell of %s", want)
		}
	}
}
