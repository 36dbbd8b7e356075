package images_test

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

// guest is a running container like a sandbox's: podd is all that runs in it.
type guest struct {
	t  *testing.T
	id string
}

// likeASandbox are the options that the docker runtime gives a container, with
// the least memory a desktop may have. It has no network but its loopback.
var likeASandbox = []string{
	"--network", "none", "--memory", "1g", "--memory-swap", "1g", "--shm-size", "1g",
	"--cap-drop", "ALL", "--cap-add", "SETUID", "--cap-add", "SETGID", "--cap-add", "KILL",
	"--cap-add", "CHOWN", "--cap-add", "FOWNER", "--cap-add", "DAC_OVERRIDE", "--cap-add", "SYS_PTRACE",
	"--security-opt", "no-new-privileges:true",
	"--tmpfs", "/tmp:rw,exec,nosuid,nodev,mode=1777",
	"--tmpfs", "/tmp/.X11-unix:rw,nosuid,nodev,mode=1777,size=64k",
	"--tmpfs", "/run/cubepod:rw,nosuid,nodev,mode=0755",
}

// newGuest starts a guest, which ends with t, and waits for its podd.
func newGuest(t *testing.T, options ...string) *guest {
	t.Helper()
	dir := needImage(t)
	args := append([]string{"run", "--detach", "--volume", dir + ":" + programsDir + ":ro", "--entrypoint", programsDir + "/podd-init"}, likeASandbox...)
	args = append(append(args, options...), image, "--addr", "127.0.0.1:49983")
	g := &guest{t: t, id: strings.TrimSpace(docker(t, args...))}
	t.Cleanup(func() { docker(t, "rm", "--force", "--volumes", g.id) })
	testutil.Eventually(t, "podd answers", func() bool {
		_, err := g.try("root", "curl", "-fsS", "http://127.0.0.1:49983/health")
		return err == nil
	})
	return g
}

// try runs a command in the guest and gives its output.
func (g *guest) try(user string, command ...string) (string, error) {
	// The test's context is over in its clean-up.
	ctx, cancel := context.WithTimeout(context.Background(), 2*testutil.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker", append([]string{"exec", "--user", user, "--workdir", "/tmp", g.id}, command...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%q: %w\n%s%s", command, err, out, stderr.String())
	}
	return string(out), nil
}

// run is try for what must succeed.
func (g *guest) run(user string, command ...string) string {
	g.t.Helper()
	out, err := g.try(user, command...)
	if err != nil {
		g.t.Fatal(err)
	}
	return out
}

// idle fails the test if anything but podd runs in the guest, or if somebody
// has ever asked for its desktop.
func (g *guest) idle() {
	g.t.Helper()
	// The shell and what it runs are not the guest's.
	names := strings.Fields(g.run("root", "sh", "-c", "for p in /proc/[0-9]*; do [ ${p#/proc/} = $$ ] || cat $p/comm 2>/dev/null; done"))
	slices.Sort(names)
	if names = slices.DeleteFunc(names, func(n string) bool { return n == "cat" }); !slices.Equal(names, []string{"podd", "podd-init"}) {
		g.t.Errorf("%q run in an idle guest", names)
	}
	if out, err := g.try("root", "test", "!", "-e", runDir+"/ctl.lock"); err != nil {
		g.t.Errorf("the desktop was asked for: %s", out)
	}
}

// docker runs the client and fails t if that fails.
func docker(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("docker", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("docker %s: %v\n%s%s", args[0], err, out, stderr.String())
	}
	return string(out)
}
