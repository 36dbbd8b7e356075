// Package runtimetest is one list of behaviours that every sessionapi.Runtime
// shows, as tests to run against each:
//
//	func TestRuntime(t *testing.T) {
//		runtimetest.Run(t, func(t *testing.T) sessionapi.Runtime { … })
//	}
//
// The sandboxes need a podd that runs commands: the real one, or a test binary
// that calls [ActAsPodd]. What only one runtime promises is tested beside it,
// with [Start] and [Guest].
package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/sessionapi"
)

// deployment is that of all sandboxes of the suite.
const deployment = "test"

// NewSpec gives the spec of a new sandbox' first incarnation.
func NewSpec() sessionapi.Spec { return Incarnation(session.NewID(), 1) }

// Incarnation gives the spec of one incarnation of a sandbox, with its own
// tokens.
func Incarnation(id session.ID, n int64) sessionapi.Spec {
	return sessionapi.Spec{
		ID: id, Incarnation: n, Deployment: deployment,
		Template:    sessionapi.Template{Name: "base", Image: Image},
		FullToken:   poddapi.Token([]byte("master key of the tests"), poddapi.Full, string(id), n),
		TunnelToken: poddapi.Token([]byte("tunnel key of the tests"), poddapi.Tunnel, string(id), n),
	}
}

// Run runs the suite against the Runtime that newRuntime makes, once a test.
func Run(t *testing.T, newRuntime func(*testing.T) sessionapi.Runtime) {
	RunLife(t, newRuntime)
	runAll(t, newRuntime, []behaviour{
		{"same incarnation is left alone", testSameIncarnation},
		{"newer incarnation replaces", testNewerIncarnation},
		{"stopped incarnation starts again", testRestart},
		{"stop ends every process", testStopEndsAll},
		{"guest user", testGuestUser},
		{"root reads no tokens", testRootSeesNoTokens},
		{"root can end what others run", testRootKills},
		{"loopback is the guest's own", testLoopback},
		{"files are the sandbox' own", testFilesApart},
	})
}

// RunLife runs the part of the suite that a Runtime in memory can pass too:
// what starts and stops make of a sandbox as seen from outside.
func RunLife(t *testing.T, newRuntime func(*testing.T) sessionapi.Runtime) {
	runAll(t, newRuntime, []behaviour{
		{"life", testLife},
		{"unknown sandbox", testUnknown},
		{"another deployment", testDeployment},
		{"start with an ended context", testStartCancelled},
		{"concurrent starts of one", testConcurrentOne},
		{"concurrent starts of many", testConcurrentMany},
		{"tokens", testTokens},
	})
}

type behaviour struct {
	name string
	test func(*testing.T, sessionapi.Runtime)
}

func runAll(t *testing.T, newRuntime func(*testing.T) sessionapi.Runtime, tests []behaviour) {
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, newRuntime(t)) })
	}
}

func inspect(t *testing.T, rt sessionapi.Runtime, id session.ID) sessionapi.Status {
	t.Helper()
	st, err := rt.Inspect(t.Context(), id)
	if err != nil {
		t.Fatalf("inspect: %v", err)
	}
	return st
}

func listed(t *testing.T, rt sessionapi.Runtime, id session.ID) bool {
	t.Helper()
	return listedIn(t, rt, deployment, id)
}

func listedIn(t *testing.T, rt sessionapi.Runtime, deployment string, id session.ID) bool {
	t.Helper()
	found := false
	for got, err := range rt.List(t.Context(), deployment) {
		if err != nil {
			t.Fatalf("list: %v", err)
		}
		found = found || got == id
	}
	return found
}

func testLife(t *testing.T, rt sessionapi.Runtime) {
	if rt.Name() == "" {
		t.Error("the runtime has no name")
	}
	spec := NewSpec()
	g, h := Start(t, rt, spec)
	if err := g.Health(t.Context()); err != nil {
		t.Errorf("after a start: %v", err)
	}
	if got, want := inspect(t, rt, spec.ID), (sessionapi.Status{Running: true, Incarnation: 1, Handle: h}); got != want {
		t.Errorf("running: got %+v, want %+v", got, want)
	}
	if !listed(t, rt, spec.ID) {
		t.Error("a running sandbox is not listed")
	}

	for range 2 {
		if err := rt.Stop(t.Context(), spec.ID); err != nil {
			t.Fatalf("stop: %v", err)
		}
		if got, want := inspect(t, rt, spec.ID), (sessionapi.Status{Incarnation: 1}); got != want {
			t.Errorf("stopped: got %+v, want %+v", got, want)
		}
	}
	if err := g.Health(t.Context()); err == nil {
		t.Error("podd answers after a stop")
	}
	if !listed(t, rt, spec.ID) {
		t.Error("a stopped sandbox is not listed")
	}

	for range 2 {
		if err := rt.Delete(t.Context(), spec.ID); err != nil {
			t.Fatalf("delete: %v", err)
		}
		if _, err := rt.Inspect(t.Context(), spec.ID); apierror.KindOf(err) != apierror.NotFound {
			t.Errorf("deleted: got %v, want not found", err)
		}
	}
	if listed(t, rt, spec.ID) {
		t.Error("a deleted sandbox is listed")
	}
}

func testUnknown(t *testing.T, rt sessionapi.Runtime) {
	id := session.NewID()
	if _, err := rt.Inspect(t.Context(), id); apierror.KindOf(err) != apierror.NotFound {
		t.Errorf("inspect: got %v, want not found", err)
	}
	if err := rt.Stop(t.Context(), id); err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := rt.Delete(t.Context(), id); err != nil {
		t.Errorf("delete: %v", err)
	}
	if listed(t, rt, id) {
		t.Error("stopping what is not there has made it")
	}
}

func testDeployment(t *testing.T, rt sessionapi.Runtime) {
	spec := NewSpec()
	Start(t, rt, spec)
	for _, state := range []string{"running", "stopped"} {
		if listedIn(t, rt, "another", spec.ID) {
			t.Errorf("a %s sandbox is on the list of another deployment", state)
		}
		if err := rt.Stop(t.Context(), spec.ID); err != nil {
			t.Fatal(err)
		}
	}
}

func testSameIncarnation(t *testing.T, rt sessionapi.Runtime) {
	spec := NewSpec()
	g, h := Start(t, rt, spec)
	g.Run(t, "echo 1 >/tmp/alive")
	_, again := Start(t, rt, spec)
	if again != h {
		t.Errorf("got %+v, want %+v", again, h)
	}
	// /tmp does not survive a restart.
	g.Run(t, "cat /tmp/alive")
}

func testNewerIncarnation(t *testing.T, rt sessionapi.Runtime) {
	spec := NewSpec()
	old, _ := Start(t, rt, spec)
	old.Run(t, "echo kept >/workspace/w && echo kept >/home/cubeplex/.h && echo gone >/tmp/t")

	g, _ := Start(t, rt, Incarnation(spec.ID, 2))
	if got := g.Run(t, "cat /workspace/w /home/cubeplex/.h"); got != "kept\nkept\n" {
		t.Errorf("got %q", got)
	}
	if !g.Fails(t, "test -e /tmp/t") {
		t.Error("/tmp survived")
	}
	if _, _, err := old.TryAs(t.Context(), 0, "true"); err == nil {
		t.Error("the token of the old incarnation runs commands")
	}
	if got := inspect(t, rt, spec.ID); !got.Running || got.Incarnation != 2 {
		t.Errorf("got %+v", got)
	}
}

func testRestart(t *testing.T, rt sessionapi.Runtime) {
	spec := NewSpec()
	g, _ := Start(t, rt, spec)
	g.Run(t, "mkdir -p /workspace/a/b && echo kept >/workspace/a/b/f && ln -s f /workspace/a/b/l && chmod 700 /workspace/a")
	if err := rt.Stop(t.Context(), spec.ID); err != nil {
		t.Fatal(err)
	}
	g, _ = Start(t, rt, spec)
	if got := g.Run(t, "cat /workspace/a/b/l; stat -c '%a %u %g' /workspace/a"); got != "kept\n700 1000 1000\n" {
		t.Errorf("got %q", got)
	}
}

func testStopEndsAll(t *testing.T, rt sessionapi.Runtime) {
	spec := NewSpec()
	g, _ := Start(t, rt, spec)
	// One that left its session and ignores signals, writing as long as it lives.
	g.Run(t, `setsid sh -c 'trap "" TERM HUP INT; i=0; while :; do i=$((i+1)); echo $i >/workspace/beat; sleep 0.02; done' >/dev/null 2>&1 &`)
	g.Run(t, "until test -s /workspace/beat; do sleep 0.02; done")
	if err := rt.Stop(t.Context(), spec.ID); err != nil {
		t.Fatal(err)
	}
	g, _ = Start(t, rt, Incarnation(spec.ID, 2))
	if out := g.Run(t, "a=$(cat /workspace/beat); sleep 0.2; b=$(cat /workspace/beat); test \"$a\" = \"$b\" || echo still"); out != "" {
		t.Error("a process of the stopped sandbox still writes")
	}
}

func testStartCancelled(t *testing.T, rt sessionapi.Runtime) {
	spec := NewSpec()
	DeleteAfter(t, rt, spec.ID)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := rt.Start(ctx, spec); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want the context's error", err)
	}
	if st, err := rt.Inspect(t.Context(), spec.ID); err == nil && st.Running {
		t.Error("it runs")
	}
	Start(t, rt, Incarnation(spec.ID, 2))
}

func testConcurrentOne(t *testing.T, rt sessionapi.Runtime) {
	spec := NewSpec()
	DeleteAfter(t, rt, spec.ID)
	handles := make([]sessionapi.Handle, 4)
	var wg sync.WaitGroup
	for i := range handles {
		wg.Go(func() {
			var err error
			if handles[i], err = rt.Start(t.Context(), spec); err != nil {
				t.Errorf("start: %v", err)
			}
		})
	}
	wg.Wait()
	for _, h := range handles {
		if h != handles[0] {
			t.Errorf("got %+v and %+v", h, handles[0])
		}
	}
	if err := Dial(rt, handles[0], spec.FullToken).Health(t.Context()); err != nil {
		t.Error(err)
	}
}

func testConcurrentMany(t *testing.T, rt sessionapi.Runtime) {
	var wg sync.WaitGroup
	for range 4 {
		spec := NewSpec()
		DeleteAfter(t, rt, spec.ID)
		wg.Go(func() {
			h, err := rt.Start(t.Context(), spec)
			if err != nil {
				t.Errorf("start: %v", err)
				return
			}
			out, code, err := Dial(rt, h, spec.FullToken).TryAs(t.Context(), poddapi.GuestUID, "echo "+string(spec.ID))
			if err != nil || code != 0 || out != string(spec.ID)+"\n" {
				t.Errorf("got %q, %d, %v", out, code, err)
			}
		})
	}
	wg.Wait()
}

func testTokens(t *testing.T, rt sessionapi.Runtime) {
	spec := NewSpec()
	_, h := Start(t, rt, spec)
	for name, token := range map[string]string{
		"tunnel":           spec.TunnelToken,
		"next incarnation": Incarnation(spec.ID, 2).FullToken,
		"another sandbox":  Incarnation(session.NewID(), 1).FullToken,
		"none":             "",
	} {
		_, _, err := Dial(rt, h, token).TryAs(t.Context(), poddapi.GuestUID, "true")
		if k := apierror.KindOf(err); k != apierror.Unauthorized && k != apierror.Forbidden {
			t.Errorf("%s: got %v, want refusal", name, err)
		}
	}
}

// testRootSeesNoTokens has a command run as root, which reads every file.
func testRootSeesNoTokens(t *testing.T, rt sessionapi.Runtime) {
	spec := NewSpec()
	g, _ := Start(t, rt, spec)
	seen := g.RunRoot(t, "cat /run/podd/token /proc/[0-9]*/environ /proc/[0-9]*/cmdline")
	if strings.Contains(seen, spec.FullToken) || strings.Contains(seen, spec.TunnelToken) {
		t.Errorf("root of the guest reads podd's tokens: %q", seen)
	}
}

func testGuestUser(t *testing.T, rt sessionapi.Runtime) {
	g, _ := Start(t, rt, NewSpec())
	if got := g.Run(t, "id -u; id -g; id -un; getent passwd 1000 | cut -d: -f6"); got != "1000\n1000\ncubeplex\n/home/cubeplex\n" {
		t.Errorf("got %q", got)
	}
	g.Run(t, "touch /workspace/f /home/cubeplex/f /tmp/f /var/tmp/f /dev/shm/f")
	for _, path := range []string{"/usr/f", "/etc/f", "/root/f", "/opt/cubepod/bin/f", "/run/podd/token", "/f"} {
		if !g.Fails(t, "echo >>"+path) {
			t.Errorf("the guest user can write %s", path)
		}
	}
	if !g.Fails(t, "cat /run/podd/token") {
		t.Error("the guest user can read podd's tokens")
	}
}

func testRootKills(t *testing.T, rt sessionapi.Runtime) {
	g, _ := Start(t, rt, NewSpec())
	pid := strings.TrimSpace(g.Run(t, "sleep 1000 >/dev/null 2>&1 & echo $!"))
	g.RunRoot(t, "tr '\\0' '\\n' </proc/"+pid+"/environ >/dev/null && kill -9 "+pid)
}

// testLoopback has servers on the loopback of the host and of one sandbox and
// looks from another.
func testLoopback(t *testing.T, rt sessionapi.Runtime) {
	host, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	hostPort := host.Addr().(*net.TCPAddr).Port

	one, _ := Start(t, rt, NewSpec())
	two, _ := Start(t, rt, NewSpec())
	const port = 18081
	one.Run(t, fmt.Sprintf(listen, port))
	one.Run(t, "until "+dial("127.0.0.1", port)+"; do sleep 0.05; done")

	if !two.Fails(t, dial("127.0.0.1", port)) {
		t.Error("a sandbox reaches the loopback of another")
	}
	addrs := []string{"127.0.0.1", "localhost"}
	if gateway := strings.TrimSpace(two.Run(t, gateway)); gateway != "" {
		addrs = append(addrs, gateway)
	}
	for _, addr := range addrs {
		if !two.Fails(t, dial(addr, hostPort)) {
			t.Errorf("a sandbox reaches the host's loopback as %s", addr)
		}
	}
}

// Any Debian image has these programs.
const (
	// listen is a shell command that listens on a loopback port, %d, in the
	// background.
	listen = `setsid perl -MIO::Socket::INET -e '
		my $l = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => %d, Listen => 5) or die;
		1 while $l->accept' >/dev/null 2>&1 &`
	// gateway is a shell command that prints the default gateway, if any.
	gateway = `perl -lane 'print join ".", reverse map hex, $F[2] =~ /../g if $F[1] eq "00000000"' /proc/net/route`
)

// dial is a shell command that succeeds if it can connect.
func dial(addr string, port int) string {
	return fmt.Sprintf("timeout 2 bash -c '</dev/tcp/%s/%d' 2>/dev/null", addr, port)
}

func testFilesApart(t *testing.T, rt sessionapi.Runtime) {
	one, _ := Start(t, rt, NewSpec())
	two, _ := Start(t, rt, NewSpec())
	const files = "/workspace/mine /home/cubeplex/mine /tmp/mine /var/tmp/mine /dev/shm/mine"
	one.Run(t, "touch "+files)
	if got := two.Run(t, "ls "+files+" 2>/dev/null || :"); got != "" {
		t.Errorf("another sandbox sees %q", got)
	}
}
