package local_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/sessionapi/local"
	"github.com/cubeplexai/cubepod/sessionapi/runtimetest"
)

// TestHostIsHidden looks as root of the guest, who passes all file modes.
func TestHostIsHidden(t *testing.T) {
	data := dataDir(t)
	rt := usable(t, open(t, local.Options{Data: data, GuestDir: standIn(t)}))
	secret := filepath.Join(data, "redis", "redis.sock")
	if err := os.MkdirAll(filepath.Dir(secret), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(secret, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	g, _ := runtimetest.Start(t, rt, runtimetest.NewSpec())

	cwd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{data, secret, cwd, "/etc/shadow", "/etc/gshadow", "/etc/ssh", "/etc/ssl/private", "/etc/sudoers",
		"/etc/apt", "/var/log", "/var/lib/dpkg", "/sys", "/boot", "/mnt", "/srv", "/dev/vda", "/dev/mem", "/dev/kmsg"} {
		if !g.FailsRoot(t, "ls -d "+path) {
			t.Errorf("a sandbox sees %s", path)
		}
	}
	for path, want := range map[string]string{
		"/root": "", "/home": "cubeplex\n", "/var": "cache\nlib\nrun\ntmp\n", "/var/lib": "podd\n", "/opt": "cubepod\n", "/opt/cubepod": "bin\n",
		"/run": "cubepod\npodd\n",
	} {
		if got := g.RunRoot(t, "ls -A "+path); got != want {
			t.Errorf("%s has %q, want %q", path, got, want)
		}
	}
	// Only podd's own processes: the init, podd, and this command's.
	if got := g.RunRoot(t, "cat /proc/[0-9]*/comm | sort -u"); strings.Contains(got, "pasta") || !strings.Contains(got, "podd") {
		t.Errorf("processes in sight: %q", got)
	}
}

func TestRootOfTheGuestIsWeak(t *testing.T) {
	rt := newRuntime(t, standIn(t))
	g, _ := runtimetest.Start(t, rt, runtimetest.NewSpec())

	status := g.RunRoot(t, "grep -E '^(CapEff|CapPrm|NoNewPrivs):' /proc/self/status")
	// 0, 1, 3, 5, 6, 7 and 19: see capabilities(7).
	if want := "CapPrm:\t00000000000800eb\nCapEff:\t00000000000800eb\nNoNewPrivs:\t1\n"; status != want {
		t.Errorf("got %q, want %q", status, want)
	}
	status = g.Run(t, "grep -E '^Cap(Prm|Eff|Amb):' /proc/self/status")
	if want := "CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapAmb:\t0000000000000000\n"; status != want {
		t.Errorf("the guest user: got %q, want %q", status, want)
	}
	const escape = `unshare --user --map-root-user --pid --fork --mount sh -c '
		mount -t proc proc /proc; mount -o remount,bind,rw /proc/sys; umount /proc/sys; cat /proc/sys/kernel/core_pattern >/proc/sys/kernel/core_pattern'`
	for _, command := range []string{
		"cat /proc/sys/kernel/core_pattern >/proc/sys/kernel/core_pattern",
		"echo h >/proc/sysrq-trigger",
		"mount -t tmpfs none /mnt",
		"mount -o remount,rw /",
		"mount -o remount,bind,rw /usr",
		"mknod /tmp/disk b 254 0",
		"touch /usr/f",
		"touch /etc/f",
		"touch /opt/cubepod/bin/f",
		"hostname other",
		escape,
	} {
		if !g.FailsRoot(t, command) {
			t.Errorf("root of a sandbox can: %s", command)
		}
	}
}

// TestPublishedSocket has root of the guest replace podd's socket by a link to
// a socket of the host's: the edge, which dials on the host, must not follow.
func TestPublishedSocket(t *testing.T) {
	data := dataDir(t)
	rt := usable(t, open(t, local.Options{Data: data, GuestDir: standIn(t)}))
	spec := runtimetest.NewSpec()
	g, h := runtimetest.Start(t, rt, spec)
	rel, ok := h.Endpoint.Socket()
	if !ok || h.Endpoint != session.LocalEndpoint(spec.ID, 1) {
		t.Fatalf("got endpoint %q", h.Endpoint)
	}
	g.RunRoot(t, "ln -sf /run/docker.sock /run/podd/podd.sock")
	fi, err := os.Lstat(filepath.Join(rt.SocketDir(), rel))
	if err != nil || fi.Mode().Type() != fs.ModeSocket {
		t.Errorf("got %v, %v, want a socket", fi, err)
	}
	if err := g.Health(t.Context()); err != nil {
		t.Error(err)
	}
	if fi, err := os.Stat(rt.SocketDir()); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("got %v, %v, want mode 0700", fi.Mode(), err)
	}
}

func TestDesktopTemplate(t *testing.T) {
	guestDir := standIn(t)
	for _, name := range []string{"cubepod-desktop-ctl", "policies/cubepod.json"} {
		path := filepath.Join(guestDir, "desktop", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	rt := newRuntime(t, guestDir)
	base, _ := runtimetest.Start(t, rt, runtimetest.NewSpec())
	if !base.Fails(t, "ls "+poddapi.CtlPath) {
		t.Error("the base template has a desktop")
	}
	spec := runtimetest.NewSpec()
	spec.Template.Desktop = true
	desktop, _ := runtimetest.Start(t, rt, spec)
	if got := desktop.Run(t, "cat "+poddapi.CtlPath+" /etc/chromium/policies/managed/cubepod.json"); got != "cubepod-desktop-ctlpolicies/cubepod.json" {
		t.Errorf("got %q", got)
	}
	// What X servers and browsers ask of a system.
	if got := desktop.Run(t, "stat -c '%a %u' /tmp /tmp/.X11-unix /dev/shm /home /home/cubeplex"); got != "1777 0\n1777 0\n1777 0\n755 0\n755 1000\n" {
		t.Errorf("got %q", got)
	}
}

// TestGuestUserReadsSystem reads what sits below directories that only mounts
// brought into being.
func TestGuestUserReadsSystem(t *testing.T) {
	rt := newRuntime(t, standIn(t))
	g, _ := runtimetest.Start(t, rt, runtimetest.NewSpec())
	g.Run(t, "ls /etc /var /var/lib /opt/cubepod/bin /home/cubeplex /usr/bin /run/cubepod >/dev/null && cat /etc/passwd /etc/resolv.conf >/dev/null")
	for _, path := range []string{"/etc/ssl/certs", "/etc/fonts", "/etc/alternatives", "/var/cache/fontconfig"} {
		if _, err := os.Stat(path); err == nil {
			g.Run(t, "ls "+path)
		}
	}
}

func TestNames(t *testing.T) {
	rt := newRuntime(t, standIn(t))
	spec := runtimetest.NewSpec()
	g, _ := runtimetest.Start(t, rt, spec)
	id := string(spec.ID)
	if got, want := g.Run(t, "hostname; cat /etc/hostname; getent hosts "+id+" | wc -l"), id+"\n"+id+"\n1\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	// Interactive shells get the terminal's environment, login shells or not.
	g.RunRoot(t, "echo 'export FROM_ENV=yes' >/run/cubepod/sandbox-env.sh && chmod 644 /run/cubepod/sandbox-env.sh")
	if got := g.Run(t, "export HOME=/home/cubeplex; bash -ic 'echo $FROM_ENV' 2>/dev/null; bash -lic 'echo $FROM_ENV' 2>/dev/null; bash -c 'echo $FROM_ENV'"); got != "yes\nyes\n\n" {
		t.Errorf("got %q", got)
	}
}
