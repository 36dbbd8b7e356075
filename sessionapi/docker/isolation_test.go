package docker_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
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
}

// TestFirewall shows what a sandbox reaches without the rules, so that it proves
// something when it does not with them.
func TestFirewall(t *testing.T) {
	testutil.NeedProgram(t, "iptables")
	testutil.NeedProgram(t, "ip")
	rt := newRuntime(t, docker.Options{GuestDir: guestDir(t)})
	g, _ := runtimetest.Start(t, rt, runtimetest.NewSpec())
	gateway := strings.Split(engine(t, "network", "inspect", "-f", "{{(index .IPAM.Config 0).Gateway}}", network), "/")[0]
	host, err := net.Listen("tcp", net.JoinHostPort(gateway, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	hostPort := host.Addr().(*net.TCPAddr).Port
	const metadata = "169.254.77.2"
	metadataPort := serveInNamespace(t, metadata, "169.254.77.1")

	rules := docker.Firewall{Network: network}
	if err := rules.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rules.Remove(context.Background()); err != nil { // t's own context has ended
			t.Error(err)
		}
	})
	if rules.Check(t.Context()) == nil {
		t.Error("rules that are not there are found")
	}
	if warnings := rt.Warnings(t.Context()); len(warnings) != 1 || !strings.Contains(warnings[0], "firewall") {
		t.Errorf("warnings: %q", warnings)
	}
	for addr, port := range map[string]int{gateway: hostPort, metadata: metadataPort} {
		if g.Fails(t, reaches(addr, port)) {
			t.Errorf("the test's premise is gone: %s cannot be reached anyway", addr)
		}
	}

	for range 2 { // it may be repeated
		if err := rules.Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := rules.Check(t.Context()); err != nil {
		t.Errorf("rules that are there are not found: %v", err)
	}
	for addr, port := range map[string]int{gateway: hostPort, metadata: metadataPort} {
		if !g.Fails(t, reaches(addr, port)) {
			t.Errorf("a sandbox reaches %s", addr)
		}
	}
	if err := g.Health(t.Context()); err != nil {
		t.Errorf("podd cannot be reached any more: %v", err)
	}
	strict := newRuntime(t, docker.Options{GuestDir: guestDir(t), RequireFirewall: true})
	if err := strict.Check(t.Context()); err != nil {
		t.Errorf("with the rules: %v", err)
	}

	if err := rules.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	stricter := newRuntime(t, docker.Options{GuestDir: guestDir(t), RequireFirewall: true})
	if stricter.Check(t.Context()) == nil {
		t.Error("a runtime that requires the rules does without")
	}
	if _, err := stricter.Start(t.Context(), runtimetest.NewSpec()); err == nil || !strings.Contains(err.Error(), "firewall") {
		t.Errorf("a start without required rules: %v", err)
	}
}

// serveInNamespace listens at an address that is routed through this host, as
// that of a cloud's metadata service is, and gives the port.
func serveInNamespace(t *testing.T, address, hostSide string) int {
	t.Helper()
	name := fmt.Sprintf("cptest%d", os.Getpid()%10000)
	ip := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	ip("netns", "add", name)
	t.Cleanup(func() { exec.Command("ip", "netns", "del", name).Run() })
	ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
	ip("addr", "add", hostSide+"/30", "dev", name)
	ip("link", "set", name, "up")
	ip("-n", name, "addr", "add", address+"/30", "dev", "eth0")
	ip("-n", name, "link", "set", "eth0", "up")
	ip("-n", name, "route", "add", "default", "via", hostSide)
	const server = `my $l = IO::Socket::INET->new(LocalPort => 0, Listen => 5) or die;
		$| = 1; print $l->sockport, "\n"; 1 while $l->accept`
	cmd := exec.Command("ip", "netns", "exec", name, "perl", "-MIO::Socket::INET", "-e", server)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var port int
	if _, err := fmt.Sscan(line, &port); err != nil {
		t.Fatal(err)
	}
	return port
}
