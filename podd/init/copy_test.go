package main_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestCopy(t *testing.T) {
	to := filepath.Join(t.TempDir(), "opt/bin")
	copyTo := func() {
		t.Helper()
		if out, err := exec.Command(bin+"/podd-init", "copy", to).CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("%v: %s", err, out)
		}
		entries, err := os.ReadDir(to)
		if err != nil || len(entries) != 2 {
			t.Fatalf("got %v, %v", entries, err)
		}
		for _, name := range []string{"podd", "podd-init"} {
			fi, err := os.Stat(filepath.Join(to, name))
			if err != nil || fi.Mode() != 0o755 {
				t.Errorf("%s: got %v, %v", name, fi.Mode(), err)
			}
			got, _ := os.ReadFile(filepath.Join(to, name))
			if want, err := os.ReadFile(filepath.Join(bin, name)); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s differs, %v", name, err)
			}
		}
	}
	stat := func(name string) os.FileInfo {
		fi, err := os.Stat(filepath.Join(to, name))
		if err != nil {
			t.Fatal(err)
		}
		return fi
	}
	copyTo()
	podd, initial := stat("podd"), stat("podd-init")
	copyTo()
	if !os.SameFile(podd, stat("podd")) {
		t.Error("what is the same is written again")
	}
	// An older one, and one that lost its mode.
	if err := os.WriteFile(filepath.Join(to, "podd"), []byte("old"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(to, "podd-init"), 0o600); err != nil {
		t.Fatal(err)
	}
	copyTo()
	if os.SameFile(podd, stat("podd")) || os.SameFile(initial, stat("podd-init")) {
		t.Error("a program that may be running is written to")
	}
	if out, err := exec.Command(filepath.Join(to, "podd-init"), "--version").CombinedOutput(); err != nil {
		t.Errorf("the copy does not run: %v: %s", err, out)
	}
	if err := exec.Command(bin+"/podd-init", "copy").Run(); err == nil {
		t.Error("copy without a directory succeeds")
	}
}
