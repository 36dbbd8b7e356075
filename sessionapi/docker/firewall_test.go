package docker_test

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi/docker"
	"github.com/cubeplexai/cubepod/sessionapi/runtimetest"
)

// place is somewhere a sandbox may try to go.
type place struct {
	name, addr string
	port       int
}

// TestFirewall shows what a sandbox reaches without the rules, so that it proves
// something when it does not with them.
func TestFirewall(t *testing.T) {
	if !onOwnHost(t) {
		return
	}
	e := runtimetest.StartEngine(t, runtimetest.Image)
	rt := newRuntime(t, docker.Options{GuestDir: guestDir(t)})
	g, _ := runtimetest.Start(t, rt, runtimetest.NewSpec())

	outside := serveInNamespace(t, "outside", "198.51.100.2", "198.51.100.1")
	metadata := serveInNamespace(t, "metadata", "169.254.169.254", "169.254.169.253")
	inner := serveInNamespace(t, "inner", "10.66.0.2", "10.66.0.1")
	gateway := strings.Split(engine(t, "network", "inspect", "-f", "{{(index .IPAM.Config 0).Gateway}}", network), "/")[0]
	// A port of the host that leads elsewhere: a published one, say.
	published := place{"a published port", "198.51.100.1", 7}
	iptables(t, "-t", "nat", "-A", "PREROUTING", "-d", published.addr, "-p", "tcp", "--dport", "7", "-j", "DNAT",
		"--to-destination", fmt.Sprintf("%s:%d", outside.addr, outside.port))
	kept := []place{published, serveHost(t, "the bridge's own address", gateway), serveHost(t, "another address of the host", "198.51.100.1"), metadata, inner}

	reached := func(when string, places []place, want bool) {
		t.Helper()
		for _, p := range places {
			if got := !g.Fails(t, reaches(p.addr, p.port)); got != want {
				t.Errorf("%s, a sandbox reaches %s: %v", when, p.name, got)
			}
		}
	}
	before := tables(t)
	rules := docker.Firewall{Network: network, Deny: []netip.Prefix{netip.MustParsePrefix("10.66.0.0/16")}}
	if rules.Check(t.Context()) == nil {
		t.Error("rules that are not there are found")
	}
	if warnings := rt.Warnings(t.Context()); len(warnings) != 1 || !strings.Contains(warnings[0], "firewall") {
		t.Errorf("warnings: %q", warnings)
	}
	reached("without rules", append(kept, outside), true)

	apply(t, rules)
	once := tables(t)
	apply(t, rules)
	if again := tables(t); again != once {
		t.Errorf("a second time they are not the same:\n%s\n%s", once, again)
	}
	reached("with rules", kept, false)
	reached("with rules", []place{outside}, true)
	if err := g.Health(t.Context()); err != nil {
		t.Errorf("podd cannot be reached any more: %v", err)
	}

	// A network beside this one.
	other := docker.Firewall{Network: "cubepodother"}
	apply(t, other)
	reached("with another network's rules", kept, false)
	if err := other.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := rules.Check(t.Context()); err != nil {
		t.Errorf("another network's rules took these away: %v", err)
	}

	// A firewall of the host that knows nothing of the engine's chain.
	iptables(t, "-D", "FORWARD", "-j", "DOCKER-USER")
	if err := rules.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "FORWARD") {
		t.Errorf("rules that nothing leads to: %v", err)
	}
	apply(t, rules)
	reached("put back", kept, false)

	e.Stop()
	e.Start(t)
	testutil.Eventually(t, "podd answers after a restart of the engine", func() bool { return g.Health(t.Context()) == nil })
	if err := rules.Check(t.Context()); err != nil {
		t.Errorf("after a restart of the engine: %v", err)
	}
	reached("after a restart of the engine", kept, false)
	reached("after a restart of the engine", []place{outside}, true)

	if err := rules.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	reached("with no more rules", kept, true)
	if after := tables(t); after != before {
		t.Errorf("rules are left:\n%s\nwas\n%s", after, before)
	}
}

// TestFirewallOfAnotherTool has the engine write its rules with the newer
// iptables, and us with the older one, which the engine's chain is not in.
func TestFirewallOfAnotherTool(t *testing.T) {
	if !onOwnHost(t) {
		return
	}
	dir := t.TempDir()
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, op := range []string{"", "-restore"} {
			old := testutil.NeedProgram(t, family+"-legacy"+op)
			if err := os.Symlink(old, filepath.Join(dir, family+op)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if out, err := exec.Command("iptables-legacy", "-S").CombinedOutput(); err != nil {
		testutil.Skip(t, "the kernel has only the newer iptables: "+string(out))
	}
	runtimetest.StartEngine(t, runtimetest.Image)
	rt := newRuntime(t, docker.Options{GuestDir: guestDir(t)})
	g, _ := runtimetest.Start(t, rt, runtimetest.NewSpec())
	metadata := serveInNamespace(t, "metadata", "169.254.169.254", "169.254.169.253")
	host := serveHost(t, "the host", "169.254.169.253")

	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	apply(t, docker.Firewall{Network: network})
	for _, p := range []place{metadata, host} {
		if !g.Fails(t, reaches(p.addr, p.port)) {
			t.Errorf("a sandbox reaches %s", p.name)
		}
	}
}

// TestRequiredFirewall starts nothing without the rules.
func TestRequiredFirewall(t *testing.T) {
	if !onOwnHost(t) {
		return
	}
	runtimetest.StartEngine(t, runtimetest.Image)
	options := docker.Options{GuestDir: guestDir(t), RequireFirewall: true}
	rt := newRuntime(t, options)
	if rt.Check(t.Context()) == nil {
		t.Error("a runtime that requires the rules does without")
	}
	if _, err := rt.Start(t.Context(), runtimetest.NewSpec()); err == nil || !strings.Contains(err.Error(), "firewall") {
		t.Errorf("a start without required rules: %v", err)
	}
	apply(t, docker.Firewall{Network: network})
	rt = newRuntime(t, options) // which has not looked yet
	if err := rt.Check(t.Context()); err != nil {
		t.Errorf("with the rules: %v", err)
	}
	g, _ := runtimetest.Start(t, rt, runtimetest.NewSpec())
	if err := g.Health(t.Context()); err != nil {
		t.Error(err)
	}
}

// onOwnHost has the test in a network of its own, where an engine of its own
// may do as it likes. See [testutil.InOwnNetwork].
func onOwnHost(t *testing.T) bool {
	t.Helper()
	runtimetest.NeedDocker(t)
	testutil.NeedProgram(t, "dockerd")
	testutil.NeedProgram(t, "iptables")
	if testing.Short() {
		testutil.Skip(t, "starts an engine")
	}
	t.Setenv("CUBEPOD_TEST_GUEST_DIR", guestDir(t))
	return testutil.InOwnNetwork(t)
}

func apply(t *testing.T, rules docker.Firewall) {
	t.Helper()
	if err := rules.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := rules.Check(t.Context()); err != nil {
		t.Errorf("rules that are there are not found: %v", err)
	}
}

func iptables(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("iptables", args...).CombinedOutput(); err != nil {
		t.Fatalf("iptables %v: %v: %s", args, err, out)
	}
}

// tables are all filter rules of this host, sorted: the engine changes the order
// of its own when it starts again.
func tables(t *testing.T) string {
	t.Helper()
	var all []string
	for _, tool := range []string{"iptables", "ip6tables"} {
		out, err := exec.Command(tool, "-S").Output()
		if err != nil {
			t.Fatalf("%s: %v", tool, err)
		}
		all = append(all, strings.Split(string(out), "\n")...)
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// serveHost listens at an address of this host.
func serveHost(t *testing.T, name, address string) place {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return place{name, address, l.Addr().(*net.TCPAddr).Port}
}

// serveInNamespace listens at an address that is routed through this host, as
// that of a cloud's metadata service is.
func serveInNamespace(t *testing.T, name, address, hostSide string) place {
	t.Helper()
	ns := fmt.Sprintf("cp%d%s", os.Getpid()%10000, name[:3])
	ip := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	ip("netns", "add", ns)
	t.Cleanup(func() { exec.Command("ip", "netns", "del", ns).Run() })
	ip("link", "add", ns, "type", "veth", "peer", "name", "eth0", "netns", ns)
	ip("addr", "add", hostSide+"/30", "dev", ns)
	ip("link", "set", ns, "up")
	ip("-n", ns, "addr", "add", address+"/30", "dev", "eth0")
	ip("-n", ns, "link", "set", "eth0", "up")
	ip("-n", ns, "route", "add", "default", "via", hostSide)
	const server = `my $l = IO::Socket::INET->new(LocalPort => 0, Listen => 5) or die;
		$| = 1; print $l->sockport, "\n"; 1 while $l->accept`
	cmd := exec.Command("ip", "netns", "exec", ns, "perl", "-MIO::Socket::INET", "-e", server)
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
	p := place{name: name, addr: address}
	if _, err := fmt.Sscan(line, &p.port); err != nil {
		t.Fatal(err)
	}
	return p
}
