package procfs_test

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/podd/procfs"
)

// start runs a copy of sleep under a name that is hard to parse.
func start(t *testing.T, attr *syscall.SysProcAttr) *exec.Cmd {
	t.Helper()
	dir, err := os.MkdirTemp("", "procfs-test-") // t.TempDir's parent is one user's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	path := dir + "/a) R 1 (b"
	data, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "300")
	cmd.Env = []string{"MARK=here"}
	cmd.SysProcAttr = attr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd
}

func TestRead(t *testing.T) {
	pid := start(t, &syscall.SysProcAttr{Setsid: true}).Process.Pid
	p, err := procfs.Read(pid)
	if err != nil {
		t.Fatal(err)
	}
	if p.PID != pid || p.Parent != os.Getpid() || p.Group != pid || p.Session != pid || p.Comm != "a) R 1 (b" || p.Start == 0 || p.Zombie() {
		t.Errorf("got %+v", p)
	}
	all, err := procfs.All()
	if err != nil || !slices.ContainsFunc(all, func(p procfs.Process) bool { return p.PID == pid }) {
		t.Errorf("the process is not among all, %v", err)
	}
}

func TestZombie(t *testing.T) {
	cmd := exec.Command("/bin/true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the child is a zombie", func() bool {
		p, err := procfs.Read(cmd.Process.Pid)
		return err == nil && p.Zombie()
	})
	cmd.Wait()
	if _, err := procfs.Read(cmd.Process.Pid); err == nil {
		t.Error("a reaped process can be read")
	}
}

func TestEnvironOfAnotherUser(t *testing.T) {
	testutil.NeedRoot(t)
	cmd := start(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}})
	env, err := procfs.Environ(cmd.Process.Pid)
	if err != nil || !bytes.Contains(env, []byte("MARK=here\x00")) {
		t.Errorf("got %q, %v", env, err)
	}
}

func TestListeners(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			testutil.Skip(t, err.Error())
		}
		defer l.Close()
		all, err := procfs.Listeners()
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(all, func(p procfs.Listener) bool { return p.Addr.String() == l.Addr().String() })
		if i < 0 {
			t.Fatalf("%s is not among %v", l.Addr(), all)
		}
		inodes, err := procfs.Sockets(os.Getpid())
		if err != nil || !slices.Contains(inodes, all[i].Inode) {
			t.Errorf("socket %d of %s is not among this process's %v, %v", all[i].Inode, l.Addr(), inodes, err)
		}
	}
}

func TestConnectionsAreNoListeners(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all, err := procfs.Listeners()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.Addr.String() == c.LocalAddr().String() || strings.HasSuffix(p.Addr.String(), ":0") {
			t.Errorf("%v listens?", p)
		}
	}
}
