package main_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi/runtimetest"
)

// rules are the filter rules of this host.
func rules(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, tool := range []string{"iptables", "ip6tables"} {
		out, err := exec.Command(tool, "-S").Output()
		if err != nil {
			t.Fatalf("%s: %v", tool, err)
		}
		all.Write(out)
	}
	return all.String()
}

func TestFirewallCommand(t *testing.T) {
	testutil.NeedProgram(t, "iptables")
	if !testutil.InOwnNetwork(t) {
		return
	}
	firewall := func(want int, args ...string) result {
		t.Helper()
		got := runProgram(t, nil, append([]string{"firewall"}, args...)...)
		if got.code != want {
			t.Errorf("firewall %v: got %+v, want code %d", args, got, want)
		}
		return got
	}
	if got := firewall(1, "--check"); !strings.Contains(got.stderr, "missing") {
		t.Errorf("got %+v", got)
	}
	firewall(0, "--remove") // what is not there is gone already
	firewall(0, "--network", "boxes", "--deny", "10.1.2.3/8,192.168.0.0/16")
	set := rules(t)
	for _, want := range []string{
		"-A INPUT -i boxes0 -j CUBEPOD-IN-boxes0", "-A DOCKER-USER -i boxes0 -j CUBEPOD-FWD-boxes0", "-A FORWARD -j DOCKER-USER",
		"-A CUBEPOD-FWD-boxes0 -d 169.254.0.0/16 -j DROP", "-A CUBEPOD-FWD-boxes0 -m conntrack --ctstate DNAT -j DROP",
		"-A CUBEPOD-FWD-boxes0 -d 10.0.0.0/8 -j DROP", "-A CUBEPOD-FWD-boxes0 -d 192.168.0.0/16 -j DROP",
	} {
		if !strings.Contains(set, want+"\n") {
			t.Errorf("the rule %q is not there:\n%s", want, set)
		}
	}
	if got := firewall(0, "--check", "--network", "boxes"); !strings.Contains(got.stdout, "in place") {
		t.Errorf("got %+v", got)
	}
	firewall(1, "--check") // of the default network
	firewall(0, "--remove", "--network", "boxes")
	if left := rules(t); strings.Contains(left, "CUBEPOD") {
		t.Errorf("rules are left:\n%s", left)
	}
	for _, args := range [][]string{{"--check", "--remove"}, {"--keep", "--check"}, {"now"}, {"--deny", "here"}} {
		firewall(1, args...)
	}
}

// TestFirewallKeep takes the rules away and waits for them.
func TestFirewallKeep(t *testing.T) {
	testutil.NeedProgram(t, "iptables")
	if !testutil.InOwnNetwork(t) {
		return
	}
	cmd := exec.Command(binary, "firewall", "--keep")
	out := &logBuffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() // one that ended is as good
		cmd.Wait()
	})
	testutil.Eventually(t, "it has set the rules", func() bool { return strings.Contains(out.String(), "in place") })
	set := rules(t)
	if o, err := exec.Command("iptables", "-F").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, o)
	}
	testutil.Eventually(t, "it has put them back", func() bool { return strings.Contains(out.String(), "put back: ") })
	if got := rules(t); got != set {
		t.Errorf("put back:\n%s\nwas\n%s", got, set)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("its end: %v", err)
	}
	if got := rules(t); got != set {
		t.Error("its end took the rules away")
	}
}

// TestWithoutFirewall asks a server with the docker runtime on a host without
// the rules.
func TestWithoutFirewall(t *testing.T) {
	runtimetest.NeedDocker(t)
	testutil.NeedProgram(t, "iptables")
	if !testutil.InOwnNetwork(t) {
		return
	}
	s := start(t, dataDir(t), "--runtime", "docker")
	var ready struct{ Warnings []string }
	testutil.Eventually(t, "it is ready", func() bool {
		code, body := s.get("/ready")
		return code == 200 && json.Unmarshal([]byte(body), &ready) == nil
	})
	if len(ready.Warnings) != 1 || !strings.Contains(ready.Warnings[0], "cubepod-sessionapi firewall") {
		t.Errorf("warnings: %q", ready.Warnings)
	}
	testutil.Eventually(t, "its log says so", func() bool { return strings.Contains(s.log.String(), "run cubepod-sessionapi firewall") })

	strict := start(t, dataDir(t), "--runtime", "docker", "--require-firewall")
	testutil.Eventually(t, "it is not ready, and says why", func() bool {
		code, body := strict.get("/ready")
		return code == 503 && strings.Contains(body, "cubepod-sessionapi firewall")
	})
}
