// Package images_test tests the desktop image with a real Docker engine: what
// it holds, the supervisor in it, and what a guest made of it does under podd.
package images_test

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

// image is the one under test.
var image = "cubepod/desktop:" + cmp.Or(os.Getenv("TAG"), "dev")

// Where things are in a guest.
const (
	ctl         = "/opt/cubepod/desktop/cubepod-desktop-ctl"
	runDir      = "/run/cubepod/desktop"
	profile     = "/home/cubeplex/.config/chromium"
	programsDir = "/opt/cubepod/bin"
)

// inside are the parts of the tests that run in the guest, by the first
// argument of this very program.
var inside = map[string]func(args []string) error{
	"chromedp": chromedpTitle,
	"resize":   resizeScreen,
	"scan":     scanPort,
	"site":     serveSite,
	"type":     typeText,
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if part, ok := inside[os.Args[1]]; ok {
			if err := part(os.Args[2:]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	code := m.Run()
	os.RemoveAll(programs.dir)
	os.Exit(code)
}

// programs are those a guest gets from outside, built once: podd and its init,
// the supervisor's tests, and these ones.
var programs struct {
	sync.Once
	dir string
	err error
}

// needImage gives the directory of the programs that guests get. It skips t
// where there is no engine, or no image.
func needImage(t *testing.T) string {
	t.Helper()
	testutil.NeedProgram(t, "docker")
	if out, err := exec.Command("docker", "image", "inspect", "--format", "{{.Id}}", image).CombinedOutput(); err != nil {
		testutil.Skip(t, fmt.Sprintf("needs a Docker engine with the image %s, see images/build.sh: %s", image, out))
	}
	programs.Do(func() { programs.dir, programs.err = buildPrograms() })
	if programs.err != nil {
		t.Fatal(programs.err)
	}
	return programs.dir
}

func buildPrograms() (dir string, err error) {
	dir, err = os.MkdirTemp("", "image-test-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // for the guest's user
		return dir, err
	}
	for name, command := range map[string][]string{
		"podd":      {"build", "../podd"},
		"podd-init": {"build", "../podd/init"},
		"ctl.test":  {"test", "-c", "../desktopctl"},
		"inside":    {"test", "-c", "."},
	} {
		last := len(command) - 1
		cmd := exec.Command("go", append(command[:last:last], "-o", filepath.Join(dir, name), command[last])...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // the image may have an older libc
		if out, err := cmd.CombinedOutput(); err != nil {
			return dir, fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return dir, nil
}
