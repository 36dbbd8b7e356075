// Package testutil helps CubePod's tests: real servers to run against, waiting
// without sleeping, and skips that CI turns into failures.
package testutil

import (
	"os"
	"os/exec"
	"testing"
)

// NoSkipEnv names the environment variable that turns every skip into a
// failure. CI sets it, so that nothing passes by not running.
const NoSkipEnv = "CUBEPOD_TEST_NO_SKIP"

// Skip skips t because this machine lacks something; reason says what. Under
// [NoSkipEnv] it fails t instead.
func Skip(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv(NoSkipEnv) != "" {
		t.Fatalf("may not be skipped here: %s", reason)
	}
	t.Skip(reason)
}

// NeedProgram gives the path of a program, or skips t.
func NeedProgram(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Skip(t, "needs the program "+name)
	}
	return path
}

// NeedRoot skips t unless it runs as root.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Skip(t, "needs root")
	}
}
