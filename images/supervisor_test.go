package images_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// alone runs a command in a container that has no podd and no network, and
// gives its output. The options end with the image and the command.
func alone(t *testing.T, options ...string) ([]byte, error) {
	t.Helper()
	dir := needImage(t)
	args := append([]string{"run", "--rm", "--init", "--network", "none", "--hostname", "boxa", "--shm-size", "256m",
		"--volume", dir + ":/test:ro", "--workdir", "/tmp", "--entrypoint="}, options...)
	return exec.CommandContext(t.Context(), "docker", args...).CombinedOutput()
}

// TestScript runs test_ctl.sh, which looks at the image as its users do.
func TestScript(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs("desktop/test_ctl.sh")
	if err != nil {
		t.Fatal(err)
	}
	out, err := alone(t, "--cap-add", "SYS_PTRACE", "--volume", script+":/test_ctl.sh:ro", image, "/test_ctl.sh")
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%d checks", strings.Count(string(out), "\nok ")+1)
}

// TestSupervisor runs each of the supervisor's own tests with the programs of
// the image, in a container of its own. Nothing may be skipped there.
func TestSupervisor(t *testing.T) {
	dir := needImage(t)
	list := exec.Command(filepath.Join(dir, "ctl.test"), "-test.list", ".")
	list.Env = append(os.Environ(), "CUBEPOD_TEST_BOX_PROGRAM="+ctl) // else it builds one
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	asRoot := rootTests(t)
	for _, name := range strings.Fields(string(out)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			user := []string{"--user", "1000:1000", "--tmpfs", "/run/cubepod:uid=1000,gid=1000,mode=0755"}
			if asRoot[name] {
				user = []string{"--user", "0:0", "--cap-add", "SYS_ADMIN", "--security-opt", "apparmor=unconfined"}
			}
			out, err := alone(t, append(user, "--env", "CUBEPOD_TEST_BOX=1", "--env", "CUBEPOD_TEST_BOX_PROGRAM="+ctl,
				"--env", "CUBEPOD_TEST_NO_SKIP=1", image, "/test/ctl.test", "-test.run", "^"+name+"$")...)
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

var rootTest = regexp.MustCompile(`func (Test\w+)\(t \*testing\.T\) \{\n\tif !(?:enterAsRoot\(|furnish\(t, boxtest\.EnterAsRoot)`)

// rootTests are the supervisor's tests that start as root in their guest.
func rootTests(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("../desktopctl/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	tests := make(map[string]bool)
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range rootTest.FindAllSubmatch(source, -1) {
			tests[string(m[1])] = true
		}
	}
	if len(tests) == 0 {
		t.Fatal("no test starts as root: the pattern is out of date")
	}
	return tests
}
