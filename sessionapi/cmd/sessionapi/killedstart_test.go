package main_test

import (
	"context"
	"os"
	"testing"

	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// slowCtl is a supervisor whose start takes until the file go is there.
const slowCtl = `#!/bin/bash
exec 9>/run/cubepod/desktop/ctl.lock
flock 9
: >/workspace/begun
if [ ! -e /run/cubepod/desktop/up ]; then
	until [ -e /workspace/go ]; do sleep 0.05; done
	echo started >>/workspace/starts
	setsid sleep 1000 9>&- >/dev/null 2>&1 &
	: >/run/cubepod/desktop/up
fi
echo '{"status":"running"}'
`

// TestKilledDuringDesktopStart kills the replica that starts a desktop, before
// the supervisor runs, while it does, and after. The start of another makes do
// with what is there.
func TestKilledDuringDesktopStart(t *testing.T) {
	c := newCluster(t)
	survivor := c.replica()
	for _, phase := range []string{"before", "during", "after"} {
		t.Run(phase, func(t *testing.T) {
			t.Parallel()
			victim := c.replica()
			id := survivor.create("")
			file := func(name string) string { return box(id, "/files?path="+name) }
			survivor.want(200, "PUT", file("/opt/cubepod/desktop/cubepod-desktop-ctl")+"&uid=0&gid=0&mode=0755", slowCtl)
			if phase == "before" {
				survivor.want(204, "POST", box(id, "/pause"), "")
			}
			if phase == "after" {
				survivor.want(200, "PUT", file("/workspace/go"), "")
			}
			called := make(chan struct{})
			go func() {
				defer close(called)
				_, _ = victim.try(context.WithoutCancel(t.Context()), "POST", box(id, "/desktop/start"), "") // may break off
			}()
			switch phase {
			case "before":
				testutil.Eventually(t, "it is at work", func() bool { return c.state(id) == session.Resuming })
			case "during":
				testutil.Eventually(t, "the supervisor runs", func() bool {
					r, err := survivor.try(t.Context(), "GET", file("/workspace/begun"), "")
					return err == nil && r.status == 200
				})
			case "after":
				<-called
			}
			victim.end(os.Kill)
			<-called

			answer := make(chan reply, 1)
			go func() {
				r, err := survivor.try(context.WithoutCancel(t.Context()), "POST", box(id, "/desktop/start"), "")
				if err != nil {
					t.Error(err)
				}
				answer <- r
			}()
			testutil.Eventually(t, "the sandbox runs", func() bool { return c.state(id) == session.Running })
			survivor.want(200, "PUT", file("/workspace/go"), "")
			if r := <-answer; r.status != 200 {
				t.Errorf("another replica's start: %v", r)
			}
			got := survivor.want(200, "POST", box(id, "/commands/run"), `{"command":"cat starts; cat /proc/[0-9]*/comm | grep -xc sleep"}`).field("output")
			if got != "started\n1\n" {
				t.Errorf("starts and stacks: %q", got)
			}
			containers, running, _ := objects(t, id)
			if containers != 1 || running != 1 {
				t.Errorf("%d containers, %d run", containers, running)
			}
			survivor.want(204, "DELETE", box(id, ""), "")
			if containers, _, volumes := objects(t, id); containers != 0 || volumes != 0 {
				t.Errorf("%d containers and %d volumes are left", containers, volumes)
			}
		})
	}
}
