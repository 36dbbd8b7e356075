package docker_test

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi/docker"
	"github.com/cubeplexai/cubepod/sessionapi/runtimetest"
)

func TestPrivileges(t *testing.T) {
	rt := newRuntime(t, docker.Options{GuestDir: guestDir(t)})
	g, _ := runtimetest.Start(t, rt, runtimetest.NewSpec())
	status := g.RunRoot(t, "cat /proc/self/status")
	for _, want := range []string{
		"NoNewPrivs:\t1",
		"Seccomp:\t2",
		// Setuid, setgid, kill, chown, fowner, dac_override, sys_ptrace.
		"CapBnd:\t00000000000800eb",
	} {
		if !strings.Contains(status, want+"\n") {
			t.Errorf("root's status lacks %q:\n%s", want, status)
		}
	}
	for _, try := range []string{
		"mount -t tmpfs none /mnt", "unshare --mount true", "chroot / true", "mknod /tmp/m c 1 3",
		"echo 1 >/proc/sys/kernel/panic", "touch /opt/cubepod/bin/x", "echo x >>/opt/cubepod/bin/podd",
	} {
		if !g.FailsRoot(t, try+" 2>/dev/null") {
			t.Errorf("root of the guest can: %s", try)
		}
	}
}

func TestLimits(t *testing.T) {
	rt := newRuntime(t, docker.Options{GuestDir: guestDir(t)})
	spec := runtimetest.NewSpec()
	spec.Template.Memory, spec.Template.PIDs, spec.Template.CPUs = 128<<20, 60, 1000
	g, h := runtimetest.Start(t, rt, spec)
	const forks = `perl -e 'for (1 .. 100) { my $p = fork; if (!defined $p) { print "refused\n"; last } if (!$p) { sleep 1000; exit } push @p, $p } kill 9, @p'`
	if out := g.Run(t, forks); out != "refused\n" {
		t.Errorf("100 processes: %q", out)
	}
	if out, code, err := g.TryAs(t.Context(), 1000, `perl -e '$x = "x" x (512 << 20); print length $x'`); err == nil && code == 0 {
		t.Errorf("512 MiB of 128 can be had: %q", out)
	}
	var info []struct {
		HostConfig struct{ NanoCpus, Memory, MemorySwap int64 }
	}
	if err := json.Unmarshal([]byte(engine(t, "inspect", h.Ref)), &info); err != nil {
		t.Fatal(err)
	}
	if c := info[0].HostConfig; c.NanoCpus == 0 || c.Memory != 128<<20 || c.MemorySwap != c.Memory {
		t.Errorf("got %+v", c)
	}
}

// listenAll is a shell command that listens on all addresses, port %d, in the
// background.
const listenAll = `setsid perl -MIO::Socket::INET -e '
	my $l = IO::Socket::INET->new(LocalPort => %d, Listen => 5) or die;
	1 while $l->accept' >/dev/null 2>&1 &`

// reaches is a shell command that succeeds if it can connect.
func reaches(addr string, port int) string {
	return fmt.Sprintf("timeout 2 bash -c '</dev/tcp/%s/%d' 2>/dev/null", addr, port)
}

func TestSandboxesDoNotReachEachOther(t *testing.T) {
	rt := newRuntime(t, docker.Options{GuestDir: guestDir(t)})
	one, h := runtimetest.Start(t, rt, runtimetest.NewSpec())
	two, _ := runtimetest.Start(t, rt, runtimetest.NewSpec())
	const port = 18082
	one.Run(t, fmt.Sprintf(listenAll, port))
	address, _ := h.Endpoint.AddrPort()
	testutil.Eventually(t, "the host reaches it", func() bool {
		c, err := net.Dial("tcp", net.JoinHostPort(address.Addr().String(), fmt.Sprint(port)))
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	for _, p := range []int{port, int(address.Port())} {
		if !two.Fails(t, reaches(address.Addr().String(), p)) {
			t.Errorf("a sandbox reaches port %d of another", p)
		}
	}
	// Of IPv6 each interface would have an address by itself, past these rules.
	if got := two.Run(t, "cat /proc/net/if_inet6 2>/dev/null || :"); got != "" {
		t.Errorf("a sandbox has IPv6: %s", got)
	}
}
