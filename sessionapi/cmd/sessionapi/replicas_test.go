package main_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

func TestAnyReplicaServesAnySandbox(t *testing.T) {
	c := newCluster(t)
	one, two, three := c.replica(), c.replica(), c.replica()
	id := one.create("")
	if got := two.want(200, "POST", box(id, "/commands/run"), `{"command":"echo hi"}`).field("output"); got != "hi\n" {
		t.Errorf("got %q", got)
	}
	two.want(204, "POST", box(id, "/pause"), "")
	if _, running, _ := objects(t, id); running != 0 {
		t.Errorf("paused, and %d containers run", running)
	}
	three.want(201, "POST", box(id, "/resume"), "{}")
	three.want(204, "DELETE", box(id, ""), "")
	for _, s := range []*server{one, two, three} {
		s.want(404, "GET", box(id, ""), "")
	}
	if containers, _, volumes := objects(t, id); containers != 0 || volumes != 0 {
		t.Errorf("%d containers and %d volumes are left", containers, volumes)
	}
}

// ctl stands for the desktop's supervisor: one start at a time, the stack
// starts once and leaves a line.
const ctl = `#!/bin/bash
exec 9>/run/cubepod/desktop/ctl.lock
flock 9
if [ ! -e /run/cubepod/desktop/up ]; then sleep 0.3; echo started >>/workspace/starts; : >/run/cubepod/desktop/up; fi
echo '{"status":"running"}'
`

func TestManyStartOneDesktop(t *testing.T) {
	c := newCluster(t)
	replicas := []*server{c.replica(), c.replica(), c.replica()}
	id := replicas[0].create("")
	defer replicas[0].want(204, "DELETE", box(id, ""), "")
	replicas[0].want(200, "PUT", box(id, "/files?path=/opt/cubepod/desktop/cubepod-desktop-ctl&uid=0&gid=0&mode=0755"), ctl)
	replicas[1].want(204, "POST", box(id, "/pause"), "") // so that they resume it too

	const calls = 300
	var ok atomic.Int64
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			r, err := replicas[i%3].try(t.Context(), "POST", box(id, "/desktop/start"), "")
			if err != nil || r.status != http.StatusOK || !strings.Contains(r.body, "vnc.html") {
				t.Errorf("got %v, %v", r, err)
				return
			}
			ok.Add(1)
		})
	}
	wg.Wait()
	starts := replicas[2].want(200, "POST", box(id, "/commands/run"), `{"command":"cat /workspace/starts"}`).field("output")
	if ok.Load() != calls || starts != "started\n" {
		t.Errorf("%d of %d calls succeeded, starts: %q", ok.Load(), calls, starts)
	}
}

// TestKilledReplica kills a replica as soon as the record says that it is at
// work. Another takes over once the lease has expired.
func TestKilledReplica(t *testing.T) {
	c := newCluster(t)
	survivor := c.replica()
	for phase, begin := range map[session.State]struct {
		from         string // what the survivor does first, below the sandbox
		method, path string
		settled      []session.State
	}{
		session.Creating: {"", "POST", "", []session.State{session.Deleted}}, // nobody knows its id
		session.Pausing:  {"", "POST", "/pause", []session.State{session.Paused}},
		session.Resuming: {"/pause", "POST", "/resume", []session.State{session.Running, session.Paused}},
		session.Deleting: {"", "DELETE", "", []session.State{session.Deleted}},
	} {
		t.Run(string(phase), func(t *testing.T) {
			t.Parallel()
			victim := c.replica()
			var id session.ID
			if phase != session.Creating {
				id = survivor.create("")
			}
			if begin.from != "" {
				survivor.want(204, "POST", box(id, begin.from), "")
			}
			// News of every write, until the one that the victim is killed after.
			sub := c.rdb.Subscribe(t.Context(), session.ChangedChannel)
			defer sub.Close()
			if _, err := sub.Receive(t.Context()); err != nil {
				t.Fatal(err)
			}
			path, body := box(id, begin.path), ""
			var marker string
			if phase == session.Creating {
				marker = t.Name()
				path, body = "/sandboxes", fmt.Sprintf(`{"templateID":"base","timeout":600,"metadata":{"test":%q}}`, marker)
			}
			called := make(chan struct{})
			go func() {
				defer close(called)
				_, _ = victim.try(context.WithoutCancel(t.Context()), begin.method, path, body) // breaks off
			}()
			for m := range sub.Channel() {
				doc, err := c.rdb.HGet(t.Context(), session.RecordKey(session.ID(m.Payload)), session.DocField).Result()
				if err != nil {
					continue
				}
				rec, err := session.Decode([]byte(doc))
				if err != nil {
					t.Fatal(err)
				}
				if rec.State == phase && (rec.ID == id || marker != "" && rec.Metadata["test"] == marker) {
					id = rec.ID
					break
				}
			}
			victim.end(os.Kill)
			<-called
			testutil.Eventually(t, "another replica has settled it", func() bool {
				for _, s := range begin.settled {
					if c.state(id) == s {
						return true
					}
				}
				return false
			})
			wantRunning := 0
			if c.state(id) == session.Running {
				wantRunning = 1
			}
			containers, running, _ := objects(t, id)
			if running != wantRunning {
				t.Errorf("%s, and %d containers run", c.state(id), running)
			}
			if c.state(id) != session.Deleted {
				if containers != 1 {
					t.Errorf("%s, and there are %d containers", c.state(id), containers)
				}
				survivor.want(204, "DELETE", box(id, ""), "")
			}
			if containers, _, volumes := objects(t, id); containers != 0 || volumes != 0 {
				t.Errorf("%d containers and %d volumes are left", containers, volumes)
			}
		})
	}
}

// TestRedisRestart asks all the time while Redis goes and comes back.
func TestRedisRestart(t *testing.T) {
	c := newCluster(t)
	one, two := c.replica("--rate-limit", "0"), c.replica("--rate-limit", "0")
	id := one.create("")
	defer two.want(204, "DELETE", box(id, ""), "")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	var refused atomic.Int64
	for _, s := range []*server{one, two} {
		wg.Go(func() {
			for ctx.Err() == nil {
				r, err := s.try(ctx, "GET", box(id, ""), "")
				switch {
				case ctx.Err() != nil:
				case err != nil:
					t.Error(err)
				case r.status == http.StatusServiceUnavailable:
					refused.Add(1)
					if r.header.Get("Retry-After") == "" || r.field("error") != "store_unavailable" {
						t.Errorf("got %v, %v", r, r.header)
					}
				case r.status != http.StatusOK:
					t.Errorf("got %v", r)
				}
			}
		})
	}
	c.redis.Stop(t)
	testutil.Eventually(t, "callers are told to come again", func() bool { return refused.Load() > 3 })
	for _, s := range []*server{one, two} {
		if status, _ := s.get("/ready"); status != 503 {
			t.Errorf("ready without Redis: %d", status)
		}
		if status, _ := s.get("/health"); status != 200 {
			t.Errorf("health without Redis: %d", status)
		}
	}
	c.redis.Start(t)
	// At once: nobody is told so again.
	one.want(200, "POST", box(id, "/commands/run"), `{"command":"true"}`)
	stop()
	wg.Wait()
}

// TestContainerRemoved goes behind the API's back.
func TestContainerRemoved(t *testing.T) {
	c := newCluster(t)
	one, two := c.replica(), c.replica()
	id := one.create("")
	defer two.want(204, "DELETE", box(id, ""), "")
	one.want(200, "POST", box(id, "/commands/run"), `{"command":"echo kept >f"}`)
	docker(t, "rm", "-f", "cubepod-"+string(id)+"-1")
	testutil.Eventually(t, "the sandbox is failed", func() bool { return two.want(200, "GET", box(id, ""), "").field("state") == "failed" })
	if reason := two.want(200, "GET", box(id, ""), "").field("reason"); !strings.Contains(reason, "removed") {
		t.Errorf("reason: %q", reason)
	}
	two.want(201, "POST", box(id, "/resume"), "{}")
	if got := one.want(200, "POST", box(id, "/commands/run"), `{"command":"cat f"}`).field("output"); got != "kept\n" {
		t.Errorf("got %q", got)
	}
}

// TestShutdownHandsOver ends a replica in good order while it creates.
func TestShutdownHandsOver(t *testing.T) {
	c := newCluster(t)
	one, two := c.replica(), c.replica()
	done := make(chan reply, 1)
	go func() {
		r, err := one.try(context.WithoutCancel(t.Context()), "POST", "/sandboxes", `{"templateID":"base","timeout":600}`)
		if err != nil {
			t.Errorf("create: %v", err)
		}
		done <- r
	}()
	testutil.Eventually(t, "it creates", func() bool {
		n, err := c.rdb.ZCard(t.Context(), session.SandboxesKey).Result()
		return err == nil && n == 1 || len(done) == 1
	})
	one.end(syscall.SIGTERM)
	r := <-done
	if r.status != http.StatusCreated {
		t.Fatalf("the call under way: %v", r)
	}
	two.want(204, "DELETE", box(session.ID(r.field("sandboxID")), ""), "")
}
