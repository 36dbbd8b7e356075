package main_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// onEach runs a test on both runtimes.
func onEach(t *testing.T, test func(t *testing.T, c *cluster, runtime string)) {
	for name, newCluster := range map[string]func(*testing.T) *cluster{"local": newLocalCluster, "docker": newCluster} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newCluster(t), name)
		})
	}
}

// poddOf finds the process of a sandbox's podd among this machine's: the parent
// of a command that nobody else runs.
func (s *server) poddOf(id session.ID) int {
	s.t.Helper()
	s.want(200, "POST", box(id, "/commands/run"), `{"command":"exec -a `+string(id)+` sleep 1000","background":true}`)
	pid := 0
	testutil.Eventually(s.t, "the command is among the processes", func() bool {
		dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well-formed
		for _, dir := range dirs {
			cmdline, _ := os.ReadFile(dir + "/cmdline") // one that ended has none
			if !bytes.HasPrefix(cmdline, []byte(id+"\x00")) {
				continue
			}
			stat, err := os.ReadFile(dir + "/stat")
			if err != nil {
				return false
			}
			pid, err = strconv.Atoi(strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))[1])
			return err == nil
		}
		return false
	})
	return pid
}

// TestSandboxThatDies ends a sandbox's processes behind the API's back. The next
// call says so, and so does the record from then on.
func TestSandboxThatDies(t *testing.T) {
	onEach(t, func(t *testing.T, c *cluster, runtime string) {
		s := c.replica()
		id := s.create("")
		defer s.want(204, "DELETE", box(id, ""), "")
		s.want(200, "POST", box(id, "/commands/run"), `{"command":"echo kept >f"}`)
		if runtime == "docker" {
			docker(t, "kill", "cubepod-"+string(id)+"-1")
		} else if err := syscall.Kill(s.poddOf(id), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		r, err := s.try(t.Context(), "POST", box(id, "/commands/run"), `{"command":"true"}`)
		if err != nil || r.status != 502 && r.status != 409 {
			t.Errorf("got %v, %v", r, err)
		}
		if got := s.want(200, "GET", box(id, ""), ""); got.field("state") != "paused" || !strings.Contains(got.field("reason"), "ended by themselves") {
			t.Errorf("after it: %v", got)
		}
		s.want(409, "POST", box(id, "/commands/run"), `{"command":"true"}`)
		s.want(201, "POST", box(id, "/resume"), "{}")
		if got := s.want(200, "POST", box(id, "/commands/run"), `{"command":"cat f"}`).field("output"); got != "kept\n" {
			t.Errorf("got %q", got)
		}
		if got := s.want(200, "GET", box(id, ""), ""); got.field("reason") != "<nil>" {
			t.Errorf("resumed: %v", got)
		}
	})
}

// TestStoppedPodd stops podd as a debugger in the guest can. Calls end, and the
// sandbox can be paused, resumed and deleted.
func TestStoppedPodd(t *testing.T) {
	if testing.Short() {
		testutil.Skip(t, "waits for a podd that is silent")
	}
	onEach(t, func(t *testing.T, c *cluster, _ string) {
		s := c.replica()
		id := s.create("")
		stop := func() {
			t.Helper()
			if err := syscall.Kill(s.poddOf(id), syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		}
		stop()
		if got := s.want(502, "POST", box(id, "/commands/run"), `{"command":"true"}`); got.field("error") != "podd_unreachable" {
			t.Errorf("got %v", got)
		}
		if got := s.want(200, "GET", box(id, ""), "").field("state"); got != "running" {
			t.Errorf("it may go on in a moment, and is %s", got)
		}
		s.want(204, "POST", box(id, "/pause"), "")
		s.want(201, "POST", box(id, "/resume"), "{}")
		s.want(200, "POST", box(id, "/commands/run"), `{"command":"true"}`)
		stop()
		s.want(204, "DELETE", box(id, ""), "")
		if got := c.state(id); got != session.Deleted {
			t.Errorf("deleted, and the record says %s", got)
		}
	})
}
