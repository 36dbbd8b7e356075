package testutil

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
)

// ownNetworkEnv names the test that has been given a network of its own.
const ownNetworkEnv = "CUBEPOD_TEST_OWN_NETWORK"

// InOwnNetwork gives t a network namespace, with nothing in it but a loopback
// interface, so that what it does to interfaces and firewalls does not happen
// to the machine. There it reports true. It runs the test once more for that,
// and reports false when that is done, and t shall return:
//
//	if !testutil.InOwnNetwork(t) {
//		return
//	}
//
// It skips t where it may not.
func InOwnNetwork(t *testing.T) bool {
	t.Helper()
	NeedRoot(t)
	NeedProgram(t, "ip")
	if os.Getenv(ownNetworkEnv) == t.Name() {
		if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			t.Fatalf("loopback: %v: %s", err, out)
		}
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+regexp.QuoteMeta(t.Name())+"$", "-test.v")
	cmd.Env = append(os.Environ(), ownNetworkEnv+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		Skip(t, "needs the right to make network namespaces")
	}
	if err != nil {
		t.Fatalf("in a network of its own: %v\n%s", err, out)
	}
	if bytes.Contains(out, []byte("\n--- SKIP: "+t.Name())) {
		t.Skipf("%s", out)
	}
	return false
}
