package main_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// limited starts a podd in a control group with a limit, be it v1 or v2.
func limited(t *testing.T, controller, v1File, v2File, value string) *podd {
	t.Helper()
	testutil.NeedRoot(t)
	for _, at := range [][2]string{{"/sys/fs/cgroup/" + controller, v1File}, {"/sys/fs/cgroup", v2File}} {
		dir := filepath.Join(at[0], fmt.Sprintf("podd-limit-%d", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		if err := setLimit(filepath.Join(dir, at[1]), value); err != nil {
			os.Remove(dir)
			continue
		}
		t.Cleanup(func() { // podd has ended
			testutil.Eventually(t, "the group is gone", func() bool {
				err := os.Remove(dir)
				return err == nil || errors.Is(err, fs.ErrNotExist) // the machine may clean up by itself
			})
		})
		p := startIn(t, t.TempDir(), nil, "/bin/sh", "-c", "echo $$ > "+dir+`/cgroup.procs && exec "$0" "$@"`)
		// Without its limit the test would be a danger to the machine.
		procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil || !slices.Contains(strings.Fields(string(procs)), strconv.Itoa(p.cmd.Process.Pid)) {
			t.Fatalf("podd is not among %q of %s, %v", procs, dir, err)
		}
		return p
	}
	testutil.Skip(t, "no "+controller+" controller to limit podd with")
	return nil
}

// setLimit writes to a file that is there: a directory that is no control
// group would take any name.
func setLimit(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func TestOutOfMemory(t *testing.T) {
	p := limited(t, "memory", "memory.limit_in_bytes", "memory.max", "200M")
	r := p.run(t, "ulimit -v 4000000; exec tail /dev/zero") // far beyond the limit
	if r.ExitCode == nil || *r.ExitCode != 137 || r.Signal != "SIGKILL" || !r.OOMKilled {
		t.Errorf("got %+v", r.Status)
	}
	if r := p.run(t, "kill -9 $$"); r.OOMKilled || *r.ExitCode != 137 {
		t.Errorf("got %+v", r.Status)
	}
}

// podd is spared by the kernel, its commands are not.
func TestShield(t *testing.T) {
	testutil.NeedRoot(t)
	// A process that raised its score may lower it again, whatever it may
	// else do.
	p := startIn(t, t.TempDir(), nil, "/bin/sh", "-c", `echo 500 > /proc/self/oom_score_adj && exec "$0" "$@"`)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				if r := p.run(t, "cat /proc/self/oom_score_adj"); r.Output != "500\n" {
					t.Errorf("a command's score is %s", r.Output)
				}
			}
		})
	}
	all.Wait()
	score := func() string {
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", p.cmd.Process.Pid))
		return string(data)
	}
	testutil.Eventually(t, "podd is spared", func() bool { return score() == "0\n" || score() == "-900\n" })
}

func TestOutOfProcesses(t *testing.T) {
	p := limited(t, "pids", "pids.max", "pids.max", "120")
	bg, err := p.Run(t.Context(), poddapi.RunRequest{Command: "while :; do sleep 300 & done 2>/dev/null", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	testutil.Eventually(t, "there is no process left to have", func() bool {
		_, err := p.Run(t.Context(), poddapi.RunRequest{Command: "true"})
		if e, ok := errors.AsType[*apierror.Error](err); ok && e.Code == "no_process" && e.Kind == apierror.Unavailable {
			refused++
		} else if err != nil {
			t.Fatalf("got %v\n%s", err, p.log)
		}
		return refused >= 50
	})
	p.post(t, "/v1/commands/"+bg.ID+"/kill")
	if r := p.run(t, "echo works"); !strings.HasPrefix(r.Output, "works") {
		t.Errorf("got %+v", r)
	}
}
