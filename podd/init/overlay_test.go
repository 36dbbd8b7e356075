package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

// volume is a file system of its own. The host's part of the test sees it too.
func volume(t *testing.T) string {
	t.Helper()
	testutil.NeedRoot(t)
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "none", dir).CombinedOutput(); err != nil {
		testutil.Skip(t, fmt.Sprintf("mount: %s", out))
	}
	t.Cleanup(func() { exec.Command("umount", "-l", dir).Run() })
	return dir
}

func TestOverlay(t *testing.T) {
	const file = "/etc/cubepod-overlay-test"
	vol, shared := volume(t), volume(t)
	upper := filepath.Join(vol, "a, b:c")
	env := []string{"CUBEPOD_ROOTFS_UPPER=" + upper}
	for i := range 2 { // the second life finds what the first one left
		g := start(t, shared, env)
		if h, err := g.Health(t.Context()); err != nil || h.InitState != "overlay" {
			t.Fatalf("got %+v, %v\n%s", h, err, g.log)
		}
		if out := g.run(t, "cat "+file+" 2>/dev/null").Output; out != strings.Repeat("life\n", i) {
			t.Errorf("life %d: got %q", i, out)
		}
		g.run(t, "echo life >> "+file)
		// Mounts are there, below mounts too; and the root is the overlay.
		out := g.run(t, "stat -f -c %T /; stat -c %a-%u /; test -c /dev/null && test -d /proc/self && test -S "+shared+"/podd.sock && echo mounted; grep -c ' / / ' /proc/self/mountinfo; pwd").Output
		root, err := os.Stat("/")
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("overlayfs\n%o-0\nmounted\n1\n/\n", root.Mode().Perm()); out != want {
			t.Errorf("got %q, want %q", out, want)
		}
		// Whoever enters the container by process 1 enters the same root.
		if out := g.run(t, "cat /proc/1/root"+file+"; readlink /proc/1/ns/mnt; readlink /proc/self/ns/mnt").Output; !strings.HasPrefix(out, "life\n") || !sameLines(out) {
			t.Errorf("got %q", out)
		}
		if got := g.end(syscall.SIGTERM); got != 0 {
			t.Errorf("got %d\n%s", got, g.log)
		}
		if g.log.String() != "" && strings.Contains(g.log.String(), "podd-init") {
			t.Errorf("it says %s", g.log)
		}
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the image has changed: %v", err)
	}
	if data, err := os.ReadFile(filepath.Join(upper, "upper", file)); string(data) != "life\nlife\n" {
		t.Errorf("the volume has %q, %v", data, err)
	}
}

// A volume that is mounted for the overlay alone is not seen from inside.
func TestTheUpperLayersVolumeIsHidden(t *testing.T) {
	vol, shared := volume(t), volume(t)
	g := start(t, shared, []string{"CUBEPOD_ROOTFS_UPPER=" + vol})
	if out := g.run(t, "ls "+vol+"; echo over").Output; out != "over\n" {
		t.Errorf("got %q", out)
	}
}

// sameLines reports whether the last two lines of s are the same.
func sameLines(s string) bool {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	n := len(lines)
	return n >= 2 && lines[n-1] == lines[n-2]
}

func TestNoOverlay(t *testing.T) {
	vol, shared := volume(t), volume(t)
	for name, c := range map[string]struct {
		upper   string
		wrapper []string
	}{
		"without the right":     {vol, []string{testutil.NeedProgram(t, "setpriv"), "--bounding-set=-sys_admin"}},
		"no file system for it": {"/proc/1", nil},
		"relative":              {"volume", nil},
	} {
		g := start(t, shared, []string{"CUBEPOD_ROOTFS_UPPER=" + c.upper}, c.wrapper...)
		if h, err := g.Health(t.Context()); err != nil || h.InitState != "no_overlay" {
			t.Errorf("%s: got %+v, %v", name, h, err)
		}
		if out := g.run(t, "echo works").Output; out != "works\n" {
			t.Errorf("%s: got %q", name, out)
		}
		if got := strings.Count(g.log.String(), "[podd-init] "); got != 1 || !strings.Contains(g.log.String(), "[podd-init] no overlay on "+c.upper) {
			t.Errorf("%s: got %s", name, g.log)
		}
		g.end(syscall.SIGTERM)
	}
}

// get asks for what the client has no method for.
func get(t *testing.T, g *guest, path string, v any) {
	t.Helper()
	resp, err := (&http.Client{Transport: g.rt}).Get("http://podd" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", path, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(v); err != nil {
		t.Fatal(err)
	}
}
