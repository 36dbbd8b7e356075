package local_test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi/local"
	"github.com/cubeplexai/cubepod/sessionapi/runtimetest"
)

func TestNewRefusesDirectory(t *testing.T) {
	long := filepath.Join(dataDir(t), strings.Repeat("x", 60))
	for name, want := range map[string]string{long: "too long", "/usr/local/share/cubepod-test": "under /usr"} {
		_, err := local.New(local.Options{Data: name})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
		if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s was made: %v", name, err)
			os.RemoveAll(name)
		}
	}
}

const checkEnv = "CUBEPOD_TEST_CHECK_GUEST_DIR"

// TestCheckHere is no test: it prints what Check says in a process of
// TestCheck's making.
func TestCheckHere(t *testing.T) {
	guestDir := os.Getenv(checkEnv)
	if guestDir == "" {
		return
	}
	rt, err := local.New(local.Options{Data: os.Getenv("CUBEPOD_TEST_DATA"), GuestDir: guestDir})
	if err != nil {
		t.Fatal(err)
	}
	err = rt.Check(t.Context())
	if e := apierror.From(err); e.Code != "runtime_unavailable" || e.Kind != apierror.Unavailable {
		t.Fatalf("got %v", err)
	}
	os.Stdout.WriteString("says: " + apierror.From(err).Detail + "\n")
}

func TestCheckSaysWhatIsMissing(t *testing.T) {
	testutil.NeedRoot(t)
	setpriv := testutil.NeedProgram(t, "setpriv")
	// Any user may run it.
	self := filepath.Join(dataDir(t), "test")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	copyFile(t, exe, self)
	if err := os.Chmod(filepath.Dir(self), 0o755); err != nil {
		t.Fatal(err)
	}

	tests := []struct {
		name  string
		argv  []string
		path  string
		uid   uint32
		guest string
		want  string
	}{
		{name: "not root", uid: 65534, want: "needs root"},
		{name: "no bubblewrap", path: "/nonexistent", want: "install the package bubblewrap"},
		{name: "no podd", guest: "/nonexistent", want: "no podd at /nonexistent/guest/podd"},
		{name: "no CAP_SYS_ADMIN", argv: []string{setpriv, "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"}, want: "--privileged"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			data := dataDir(t)
			if err := os.Chown(data, int(tt.uid), -1); err != nil {
				t.Fatal(err)
			}
			if tt.guest == "" {
				tt.guest = script(t, "exit 1\n")
			}
			argv := append(tt.argv, self, "-test.run=^TestCheckHere$")
			cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
			cmd.Dir = "/"
			cmd.Env = append(os.Environ(), checkEnv+"="+tt.guest, "CUBEPOD_TEST_DATA="+data)
			if tt.path != "" {
				cmd.Env = append(cmd.Env, "PATH="+tt.path)
			}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: tt.uid, Gid: tt.uid}}
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "says: ") || !strings.Contains(string(out), tt.want) {
				t.Errorf("got %v, want %q in:\n%s", err, tt.want, out)
			}
		})
	}
}

const resolverEnv = "CUBEPOD_TEST_RESOLVER_GUEST_DIR"

// TestResolverHere is no test: TestResolverOnLoopback runs it on a network of
// its own. It serves DNS on the host's loopback and asks from a sandbox.
func TestResolverHere(t *testing.T) {
	guestDir := os.Getenv(resolverEnv)
	if guestDir == "" {
		return
	}
	server, err := net.ListenPacket("udp", "127.0.0.53:53")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		answerAll(server)
	}()
	defer func() { server.Close(); <-served }()

	g, _ := runtimetest.Start(t, newRuntime(t, guestDir), runtimetest.NewSpec())
	if got := g.Run(t, "getent ahostsv4 anything.example"); !strings.HasPrefix(got, "10.1.2.3 ") {
		t.Errorf("got %q", got)
	}
}

// answerAll answers every DNS query with the address 10.1.2.3.
func answerAll(server net.PacketConn) {
	query := make([]byte, 512)
	for {
		n, from, err := server.ReadFrom(query)
		if err != nil {
			return
		}
		const header = 12
		end := bytes.IndexByte(query[header:n], 0) + header + 1 + 4 // name, type, class
		reply := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0}, query[header:end]...)
		reply = append(reply, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 1, 2, 3)
		_, _ = server.WriteTo(reply, from) // the client asks again
	}
}

func TestResolverOnLoopback(t *testing.T) {
	testutil.NeedRoot(t)
	testutil.NeedProgram(t, "pasta")
	testutil.NeedProgram(t, "ip")
	guestDir := standIn(t)
	resolv := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver 127.0.0.53\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const script = `set -e
		ip link set lo up
		ip tuntap add out0 mode tap
		ip addr add 10.9.9.2/24 dev out0
		ip link set out0 up
		ip route add default via 10.9.9.1
		mount --bind "$1" /etc/resolv.conf
		exec "$2" -test.run='^TestResolverHere$' -test.v`
	cmd := exec.CommandContext(t.Context(), "unshare", "--net", "--mount", "sh", "-c", script, "sh", resolv, self)
	cmd.Env = append(os.Environ(), resolverEnv+"="+guestDir)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestResolverHere") {
		t.Errorf("got %v:\n%s", err, out)
	}
}
