package main_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/cubeplexai/cubepod/desktopctl/boxtest"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// graphical are the programs of which an idle guest has none.
var graphical = []string{"Xvfb", "openbox", "x11vnc", "chromium", "cubepod-desktop-ctl"}

func TestLifecycle(t *testing.T) {
	if !enter(t) {
		return
	}
	code, r, output := ctl("status")
	want := result{
		Status: "stopped", Display: ":99", Resolution: "1280x800x24",
		Ports: map[string]int{"desktop": 8080, "terminal": 7681, "cdp": 9222}, Pids: map[string]int{},
	}
	if diff := cmp.Diff(want, r); code != 0 || diff != "" {
		t.Errorf("status of nothing: exit code %d, %s\n%s", code, output, diff)
	}

	first := start(t)
	want.Status, want.Pids, want.Timings = "running", first.Pids, first.Timings
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("start: %s", diff)
	}
	for _, name := range append(slices.Clone(components), "total") {
		if first.Timings[name] <= 0 {
			t.Errorf("timings of a cold start lack %s: %v", name, first.Timings)
		}
	}
	second := start(t)
	if diff := cmp.Diff(first.Pids, second.Pids); diff != "" {
		t.Errorf("a second start changed pids: %s", diff)
	}
	if _, r, output := ctl("status"); r.Status != "running" || !maps.Equal(r.Pids, first.Pids) {
		t.Errorf("status: %s", output)
	}
	for range 2 {
		if code, r, output := ctl("stop"); code != 0 || r.Status != "stopped" || len(r.Pids) != 0 {
			t.Errorf("stop: exit code %d, %s", code, output)
		}
	}
	if n := boxtest.Processes(graphical...); n != 0 {
		t.Errorf("%d processes left after stop", n)
	}
}

func TestDaemons(t *testing.T) {
	if !enter(t) {
		return
	}
	t.Setenv("AGENT_SECRET", "s3cret")
	// A file that the caller left open, as shells and old programs do.
	left, err := os.Create(t.TempDir() + "/left-open")
	if err != nil {
		t.Fatal(err)
	}
	defer left.Close()
	if _, err := unix.FcntlInt(left.Fd(), unix.F_SETFD, 0); err != nil {
		t.Fatal(err)
	}
	r := start(t)
	for _, l := range listeners(t) {
		if !l.Addr().IsLoopback() || !slices.Contains([]uint16{7681, 8080, 9222, 9223}, l.Port()) {
			t.Errorf("somebody listens on %v", l)
		}
	}
	for name, pid := range r.Pids {
		proc := fmt.Sprintf("/proc/%d", pid)
		if sid, err := unix.Getsid(pid); err != nil || sid != pid {
			t.Errorf("%s: session %d, %v; want its own", name, sid, err)
		}
		if link, err := os.Readlink(proc + "/fd/0"); link != "/dev/null" {
			t.Errorf("%s: standard input is %q, %v", name, link, err)
		}
		for _, fd := range []string{"1", "2"} {
			link, err := os.Readlink(proc + "/fd/" + fd)
			if !strings.HasPrefix(link, runDir) || !strings.HasSuffix(link, ".log") {
				t.Errorf("%s: file %s is %q, %v; want a log", name, fd, link, err)
			}
		}
		fds, err := os.ReadDir(proc + "/fd")
		if err != nil {
			t.Error(err)
		}
		for _, fd := range fds {
			link, _ := os.Readlink(proc + "/fd/" + fd.Name())
			if strings.HasSuffix(link, "ctl.lock") || link == left.Name() {
				t.Errorf("%s has %s", name, link)
			}
		}
		env, err := os.ReadFile(proc + "/environ")
		if err != nil {
			t.Error(err)
		}
		if !strings.Contains(string(env), "HOME=/home/cubeplex\x00") || strings.Contains(string(env), "AGENT_SECRET") {
			t.Errorf("%s: environment %q", name, env)
		}
	}
}

// listeners are the TCP sockets of the guest that listen.
func listeners(t *testing.T) []netip.AddrPort {
	t.Helper()
	var all []netip.AddrPort
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(table)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			const listening = "0A"
			f := strings.Fields(line)
			if len(f) < 4 || f[3] != listening {
				continue
			}
			var port uint16
			host, _, _ := strings.Cut(f[1], ":")
			words, err := hex.DecodeString(host)
			if _, scanErr := fmt.Sscanf(f[1][len(host):], ":%X", &port); err != nil || scanErr != nil {
				t.Fatalf("%s: %q", table, line)
			}
			for w := words; len(w) > 0; w = w[4:] { // each word is in the machine's order
				binary.BigEndian.PutUint32(w, binary.NativeEndian.Uint32(w))
			}
			addr, _ := netip.AddrFromSlice(words)
			all = append(all, netip.AddrPortFrom(addr.Unmap(), port))
		}
	}
	return all
}

func TestParallelStarts(t *testing.T) {
	if !enter(t) {
		return
	}
	const callers = 20
	results := make([]result, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			var output string
			if _, results[i], output = ctl("start"); results[i].Status != "running" {
				t.Error(output)
			}
		})
	}
	wg.Wait()
	for _, r := range results {
		if !maps.Equal(r.Pids, results[0].Pids) {
			t.Errorf("pids %v and %v", r.Pids, results[0].Pids)
		}
	}
	if n := boxtest.Processes("Xvfb"); n != 1 {
		t.Errorf("%d X servers, want 1", n)
	}
}

func TestHealsOnlyTheDead(t *testing.T) {
	if !enter(t) {
		return
	}
	before := start(t, "--resolution", "1024x768x24")
	for _, name := range []string{"chromium", "vnc", "websockify", "wm", "ttyd", "xvfb"} {
		kill(t, before.Pids[name])
		var status result
		testutil.Eventually(t, "degraded without "+name, func() bool {
			_, status, _ = ctl("status")
			return status.Status == "degraded" && status.Pids[name] == 0
		})
		after := start(t)
		for _, other := range components {
			died := other == name || name == "xvfb" && slices.Contains([]string{"wm", "chromium", "vnc"}, other)
			if same := before.Pids[other] == after.Pids[other]; same == died {
				t.Errorf("after the death of %s, %s: pid %d became %d", name, other, before.Pids[other], after.Pids[other])
			}
		}
		if after.Resolution != "1024x768x24" {
			t.Errorf("after the death of %s: resolution %s", name, after.Resolution)
		}
		before = after
	}
}

// An X server that was reset, as one whose first start was killed half-way, has
// the largest screen there is. Nobody asked for that.
func TestSizeAfterReset(t *testing.T) {
	if !enter(t) {
		return
	}
	for _, want := range []string{"1280x800x24", "1024x768x24"} {
		args := []string{"--resolution", want}
		if want == "1280x800x24" {
			args = nil // the default
		}
		before := start(t, args...)
		if err := unix.Kill(before.Pids["xvfb"], unix.SIGHUP); err != nil {
			t.Fatal(err)
		}
		testutil.Eventually(t, "the X server has reset itself", func() bool {
			_, status, _ := ctl("status")
			return status.Resolution == "3840x2160x24"
		})
		if after := start(t); after.Resolution != want {
			t.Errorf("after a reset: resolution %s, want %s", after.Resolution, want)
		}
	}
}

// A VNC server that is killed leaves its shared memory behind, of which the
// kernel has only so much.
func TestKilledVNCLeavesNoMemory(t *testing.T) {
	if !enter(t) {
		return
	}
	before := start(t)
	made := 0
	for _, piece := range sharedMemory(t) {
		if piece.maker == before.Pids["vnc"] {
			made++
		}
	}
	kill(t, before.Pids["vnc"])
	after := start(t)
	for _, piece := range sharedMemory(t) {
		if piece.maker == before.Pids["vnc"] {
			t.Errorf("of %d pieces the dead server (pid %d) made, %d is left", made, before.Pids["vnc"], piece.id)
		}
	}
	if after.Pids["vnc"] == before.Pids["vnc"] {
		t.Error("the server was not killed")
	}
}

// segment is a piece of System V shared memory.
type segment struct{ id, maker int }

func sharedMemory(t *testing.T) []segment {
	t.Helper()
	list, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil {
		t.Fatal(err)
	}
	var out []segment
	for line := range strings.Lines(string(list)) {
		var key, mode, size int64
		var s segment
		if n, _ := fmt.Sscan(line, &key, &s.id, &mode, &size, &s.maker); n == 5 {
			out = append(out, s)
		}
	}
	return out
}

func TestReplacesTheHung(t *testing.T) {
	if !enter(t) {
		return
	}
	before := start(t)
	for _, name := range []string{"chromium", "xvfb", "vnc", "websockify"} {
		if err := unix.Kill(before.Pids[name], unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		after := start(t)
		if after.Pids[name] == before.Pids[name] || alive(before.Pids[name]) {
			t.Errorf("a hung %s was kept", name)
		}
		before = after
	}
}

func TestFindsWhatLostItsPidFile(t *testing.T) {
	if !enter(t) {
		return
	}
	before := start(t)
	for _, name := range components {
		if err := os.Remove(runDir + "/" + name + ".pid"); err != nil {
			t.Fatal(err)
		}
	}
	if after := start(t); !maps.Equal(before.Pids, after.Pids) {
		t.Errorf("pids %v became %v", before.Pids, after.Pids)
	}
}

func TestRootStepsDown(t *testing.T) {
	if !furnish(t, boxtest.EnterAsRoot) {
		return
	}
	r := start(t)
	for name, pid := range r.Pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"Uid:\t1000\t1000\t1000\t1000\n", "Gid:\t1000\t1000\t1000\t1000\n", "Groups:\t \n", "CapEff:\t0000000000000000\n"} {
			if !strings.Contains(string(b), want) {
				t.Errorf("%s: no %q in %s", name, want, b)
			}
		}
	}
	var st unix.Stat_t
	for path, want := range map[string]struct {
		uid, mode uint32
	}{
		runDir:           {1000, unix.S_IFDIR | 0o700},
		"/run/cubepod":   {0, unix.S_IFDIR | 0o755},
		profile:          {1000, unix.S_IFDIR | 0o700},
		"/tmp/.X11-unix": {0, unix.S_IFDIR | 0o1777},
	} {
		if err := unix.Stat(path, &st); err != nil || st.Uid != want.uid || st.Mode != want.mode {
			t.Errorf("%s: uid %d, mode %o, %v, want %+v", path, st.Uid, st.Mode, err, want)
		}
	}
	if code, r, output := ctlAs(1001, "start"); code != 1 || r.Error != "not_permitted" {
		t.Errorf("another user: exit code %d, %s", code, output)
	}
	if code, r, output := ctlAs(1000, "start"); code != 0 || r.Status != "running" {
		t.Errorf("the guest's user after root: exit code %d, %s", code, output)
	}
}
