package sessionapi_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi"
)

// TestE2BClient has E2B's own client for a witness that the API is what it
// knows.
func TestE2BClient(t *testing.T) {
	if testing.Short() {
		testutil.Skip(t, "installs a package")
	}
	testutil.NeedProgram(t, "node")
	npm := testutil.NeedProgram(t, "npm")
	dir := t.TempDir()
	install := exec.CommandContext(t.Context(), npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "e2b@^2.51.0")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		testutil.Skip(t, "npm cannot install the package e2b: "+string(out))
	}
	script, err := os.ReadFile("testdata/e2b.mjs")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "e2b.mjs"), script, 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	a := w.replica(sessionapi.Options{})
	a.create("") // another that must not be mixed up with it
	cmd := exec.CommandContext(t.Context(), "node", "e2b.mjs", "desktop")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "E2B_API_URL="+a.url, "E2B_API_KEY="+a.key)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "all of it works") {
		t.Errorf("%v: %s", err, out)
	}
	if boxes, _ := w.rt.count(); boxes != 1 {
		t.Errorf("%d sandboxes are left, want 1", boxes)
	}
}
