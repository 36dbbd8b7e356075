package testutil

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// ForbidImports fails t for each package in why, a map of import path to
// reason, that the package under test links.
func ForbidImports(t *testing.T, why map[string]string) {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", ".")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -deps: %v", err)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 2 {
		t.Fatalf("go list names %d packages: this proves nothing", len(deps))
	}
	for path, reason := range why {
		if slices.ContainsFunc(deps, func(d string) bool { return d == path || strings.HasPrefix(d, path+"/") }) {
			t.Errorf("links %s: %s", path, reason)
		}
	}
}
