package runtimetest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

// Image is the image of the suite's sandboxes, for runtimes that have images:
// a small Debian with the guest user.
const Image = "cubepod/test:bookworm"

// NeedDocker skips t unless a Docker engine answers and can be given what the
// tests need. It makes [Image] if the engine has none, which takes half a
// minute; nothing is pulled.
func NeedDocker(t testing.TB) {
	t.Helper()
	testutil.NeedRoot(t)
	testutil.NeedProgram(t, "docker")
	if out, err := exec.Command("docker", "version").CombinedOutput(); err != nil {
		testutil.Skip(t, "needs a Docker engine: "+string(out))
	}
	if exec.Command("docker", "image", "inspect", Image).Run() == nil {
		return
	}
	testutil.NeedProgram(t, "debootstrap")
	root := filepath.Join(t.TempDir(), "root")
	run(t, "debootstrap", "--variant=minbase", "bookworm", root)
	run(t, "chroot", root, "useradd", "-u", "1000", "-m", "-s", "/bin/bash", "cubeplex")
	for _, big := range []string{"var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"} {
		if err := os.RemoveAll(filepath.Join(root, big)); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "sh", "-c", `tar -C "$0" -c . | docker import - "$1"`, root, Image)
}

func run(t testing.TB, name string, args ...string) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out.Bytes())
	}
}

// NeedImages skips t unless a Docker engine answers, and builds those of the
// product's images that are missing: cubepod/NAME:dev, which takes minutes. root
// is the repository's, where make build has been.
func NeedImages(t testing.TB, root string, names ...string) {
	t.Helper()
	NeedDocker(t)
	// Tests of several packages run at once.
	if err := os.MkdirAll(filepath.Join(root, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(root, "bin", "images.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if exec.Command("docker", "image", "inspect", "cubepod/"+name+":dev").Run() != nil {
			run(t, filepath.Join(root, "images/build.sh"), name)
		}
	}
}
