package main_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

func (r *running) testIsolation(t *testing.T) {
	var other struct {
		SandboxID string `json:"sandboxID"`
	}
	if code := r.call(t, "POST", "/sandboxes", map[string]any{"templateID": "base", "timeout": 600}, &other); code != 201 {
		t.Fatalf("create: %d", code)
	}
	defer r.call(t, "DELETE", "/sandboxes/"+other.SandboxID, nil, nil)

	// A server in the first sandbox, on all its addresses.
	r.call(t, "POST", "/sandboxes/"+r.SandboxID+"/commands/run", map[string]any{
		"background": true,
		"command":    `perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(LocalAddr => "0.0.0.0", LocalPort => 6060, Listen => 5, ReuseAddr => 1) or die; while ($c = $s->accept) { print $c "secret\n"; close $c }'`,
	}, nil)
	probe := func(host string, port int) string {
		return fmt.Sprintf(`timeout 2 bash -c 'exec 3<>/dev/tcp/%s/%d && head -c 6 <&3' 2>/dev/null; echo`, host, port)
	}
	testutil.Eventually(t, "the first sandbox reaches its own server", func() bool {
		return strings.HasPrefix(r.sh(t, r.SandboxID, probe("127.0.0.1", 6060)), "secret")
	})
	addresses := append(strings.Fields(r.sh(t, r.SandboxID, "hostname -I 2>/dev/null")), "127.0.0.1")
	for _, a := range append(addresses, hostAddresses(t)...) {
		if got := r.sh(t, other.SandboxID, probe(a, 6060)); strings.Contains(got, "secret") {
			t.Errorf("the other sandbox reaches the first one at %s", a)
		}
	}

	// The host: neither the API on its loopback nor the data directory with
	// Redis, keys and the other sandbox's files.
	host := strings.TrimPrefix(r.APIURL, "http://localhost:")
	if got := r.sh(t, other.SandboxID, "timeout 2 bash -c 'exec 3<>/dev/tcp/127.0.0.1/"+host+"' 2>/dev/null && echo open"); got != "" {
		t.Error("a sandbox reaches the host's loopback")
	}
	if got := r.sh(t, other.SandboxID, "ls "+r.data+" 2>/dev/null; find / -name 'redis.sock' -not -path '/proc/*' 2>/dev/null"); got != "" {
		t.Errorf("a sandbox sees the stack's data: %s", got)
	}
	if got := r.sh(t, other.SandboxID, "ls /root /etc/shadow 2>/dev/null; ps -e 2>/dev/null | grep -c redis-server"); strings.TrimSpace(got) != "0" && strings.TrimSpace(got) != "" {
		t.Errorf("a sandbox sees the host: %q", got)
	}
}

func hostAddresses(t *testing.T) []string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && !ip.IP.IsLoopback() {
			out = append(out, ip.IP.String())
		}
	}
	return out
}
