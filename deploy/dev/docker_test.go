package main_test

import (
	"image"
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi/runtimetest"
)

// TestDocker has the stack's sandboxes in containers, of an engine of the test's
// own: the rules of the firewall are the machine's.
func TestDocker(t *testing.T) {
	if testing.Short() {
		testutil.Skip(t, "starts an engine")
	}
	needStack(t)
	for _, p := range []string{"dockerd", "iptables"} {
		testutil.NeedProgram(t, p)
	}
	runtimetest.NeedImages(t, root, "base", "desktop")
	if !testutil.InOwnNetwork(t) {
		return
	}
	runtimetest.StartEngine(t, "cubepod/base:dev", "cubepod/desktop:dev")
	data := shortTempDir(t)
	r := startStack(t, data, "--runtime", "docker")
	if !strings.Contains(r.out.String(), "firewall rules") {
		t.Errorf("it does not say that it sets firewall rules:\n%s", r.out)
	}
	r.sh(t, r.SandboxID, "echo kept > /workspace/kept")
	r.showsPicture(t)
	if got := containers(t); !strings.Contains(got, r.SandboxID) {
		t.Errorf("the sandbox is no container: %q", got)
	}

	left := descendants(t, r.cmd.Process.Pid)
	r.stop(t)
	for _, p := range left {
		if p.alive() {
			t.Errorf("left running: %s (%d)", p.command, p.pid)
		}
	}
	if got := containers(t); got != "" {
		t.Errorf("containers are left running: %q", got)
	}

	again := startStack(t, data, "--runtime", "docker")
	if again.SandboxID != r.SandboxID {
		t.Errorf("the second run has sandbox %s, want %s", again.SandboxID, r.SandboxID)
	}
	if got := again.sh(t, again.SandboxID, "cat /workspace/kept"); got != "kept\n" {
		t.Errorf("got %q after a second start, want the file", got)
	}
	again.showsPicture(t)
}

// showsPicture opens the desktop's URL and waits for the sandbox's page in it.
func (r *running) showsPicture(t *testing.T) {
	t.Helper()
	if err := chromedp.Do(sandboxBrowser(t, r.CDPURL), chromedp.Navigate(typingPage)); err != nil {
		t.Fatal(err)
	}
	user := userBrowser(t, 1000, 640)
	if err := chromedp.Do(user, chromedp.Navigate(r.DesktopURL)); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the viewer shows the sandbox's page", func() bool {
		return share(screenshot(t, user), image.Rect(250, 250, 750, 600), red, green, blue) > 0.9
	})
}

// containers names the containers that run.
func containers(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("docker", "ps", "--format", "{{.Names}}").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
