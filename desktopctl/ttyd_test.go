package main_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

const ttydPidFile = "/tmp/ttyd.pid"

// shell is a viewer of the terminal on its port.
type shell struct {
	t    *testing.T
	conn *websocket.Conn
	seen string
}

// openShell joins the terminal, as a page does or as a plainer client.
func openShell(t *testing.T, protocols ...string) *shell {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), "ws://127.0.0.1:7681/ws", &websocket.DialOptions{Subprotocols: protocols})
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadLimit(-1)
	t.Cleanup(func() { conn.CloseNow() })
	s := &shell{t: t, conn: conn}
	s.send(`{"AuthToken":"","columns":97,"rows":31}`)
	return s
}

func (s *shell) send(message string) {
	s.t.Helper()
	if err := s.conn.Write(s.t.Context(), websocket.MessageBinary, []byte(message)); err != nil {
		s.t.Fatal(err)
	}
}

// expect reads until want was printed, and forgets all up to there.
func (s *shell) expect(want string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), testutil.Patience)
	defer cancel()
	for !strings.Contains(s.seen, want) {
		_, msg, err := s.conn.Read(ctx)
		if err != nil {
			s.t.Fatalf("waiting for %q: %v; shown: %q", want, err, s.seen)
		}
		if len(msg) > 0 && msg[0] == '0' {
			s.seen += string(msg[1:])
		}
	}
	_, s.seen, _ = strings.Cut(s.seen, want)
}

// TestTerminal uses the terminal by its port, whichever program serves it.
func TestTerminal(t *testing.T) {
	if !enter(t) {
		return
	}
	if err := os.WriteFile("/run/cubepod/sandbox-env.sh", []byte("export GREETING='hallo 汉字'\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	start(t)
	first := openShell(t, "tty")
	first.send("0echo \"=$GREETING=\" \"$(stty size)=\" pid=$$=\n")
	first.expect("=hallo 汉字= 31 97= pid=")
	first.expect("=")

	// A job goes on through a reload, and is found again.
	first.send("0sleep 1000 & echo job=$!=\n")
	first.expect("job=")
	first.expect("=\r\n")
	first.conn.CloseNow()
	again := openShell(t, "tty")
	again.expect("hallo 汉字") // what was printed is shown again
	again.send("0jobs -l | sed s/Running/going/\n")
	again.expect("going")

	// A second viewer, and one that names no protocol, are in the same shell.
	second := openShell(t)
	second.send("0echo se''cond\n")
	second.expect("second\r\n")
	again.expect("second\r\n")
	again.send(`1{"columns":120,"rows":40}`)
	// ttyd tells of a new size by a signal, which what is typed may overtake.
	again.send("0until stty size | grep '40 12''0'; do :; done\n")
	again.expect("40 120")

	// A long paste arrives whole.
	paste := strings.Repeat(strings.Repeat("é", 31)+"\n", 1024)
	again.send("0cat >/tmp/paste\n")
	for rest := paste; rest != ""; {
		n := min(len(rest), 16<<10)
		again.send("0" + rest[:n])
		rest = rest[n:]
	}
	again.send("0\x04")
	testutil.Eventually(t, "the paste arrives", func() bool {
		b, err := os.ReadFile("/tmp/paste")
		return err == nil && string(b) == paste
	})

	program, err := exec.LookPath("ttyd")
	if err != nil {
		return // the terminal is all ours
	}
	pid := pidIn(t, ttydPidFile)
	if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err != nil || exe != program {
		t.Errorf("%s names %q, %v, want %s", ttydPidFile, exe, err, program)
	}
	before := start(t).Pids
	kill(t, pid)
	third := openShell(t, "tty")
	third.send("0echo still $((6*7))\n")
	third.expect("still 42")
	if after := pidIn(t, ttydPidFile); after == pid || start(t).Pids["ttyd"] != before["ttyd"] {
		t.Errorf("ttyd came back as %d, in place of %d", after, pid)
	}
	ctl("stop")
	if _, err := os.Stat(ttydPidFile); err == nil {
		t.Error("the pid file is there after stop")
	}
}

func pidIn(t *testing.T, path string) int {
	t.Helper()
	var pid int
	testutil.Eventually(t, path+" names a pid", func() bool {
		b, _ := os.ReadFile(path)
		var err error
		pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil
	})
	return pid
}

// serveAsTtyd is what this test's program does under the name of ttyd.
func serveAsTtyd() {
	_ = http.ListenAndServe("127.0.0.1:7681", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("somebody's terminal"))
	}))
}

// A ttyd that somebody else has started is the terminal, and stays theirs.
func TestForeignTtyd(t *testing.T) {
	if !enter(t) {
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "ttyd")
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(link, b, 0o755); err != nil {
		t.Fatal(err)
	}
	theirs := exec.Command(link)
	if err := theirs.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		theirs.Process.Kill()
		theirs.Wait()
	})
	answers := func() bool {
		resp, err := http.Get("http://127.0.0.1:7681/")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}
	testutil.Eventually(t, "their ttyd answers", answers)

	code, r, output := ctl("start")
	if code != 1 || r.Error != "port_in_use" || !strings.Contains(r.Message, "7681") || !strings.Contains(r.Message, strconv.Itoa(theirs.Process.Pid)) {
		t.Errorf("a stranger on the port: exit code %d, %s", code, output)
	}
	if err := os.WriteFile(ttydPidFile, fmt.Appendln(nil, theirs.Process.Pid), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := start(t); r.Pids["ttyd"] != theirs.Process.Pid {
		t.Errorf("the terminal is %d, want %d", r.Pids["ttyd"], theirs.Process.Pid)
	}
	if _, r, output := ctl("status"); r.Status != "running" || r.Pids["ttyd"] != theirs.Process.Pid {
		t.Errorf("status: %s", output)
	}
	if code, r, output := ctl("stop"); code != 0 || r.Status != "stopped" {
		t.Errorf("stop: %s", output)
	}
	if _, r, output := ctl("status"); r.Status != "stopped" {
		t.Errorf("status after stop: %s", output)
	}
	if !answers() {
		t.Error("stop ended somebody else's ttyd")
	}
}
