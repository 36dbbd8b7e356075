package main_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi/local"
)

// TestNothingIsLostWithEmbeddedRedis kills the Redis of a program, and then the
// program, while a sandbox runs.
func TestNothingIsLostWithEmbeddedRedis(t *testing.T) {
	testutil.NeedProgram(t, "redis-server")
	data, guest := dataDir(t), guestDir(t)
	rt, err := local.New(local.Options{Data: data, GuestDir: guest})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	if err := rt.Check(t.Context()); err != nil {
		testutil.Skip(t, err.Error())
	}
	templates := filepath.Join(dataDir(t), "templates")
	write(t, templates, "base: {}\n")
	begin := func() *server { return start(t, data, "--guest-dir", guest, "--templates", templates) }
	s := begin()
	key, err := os.ReadFile(filepath.Join(data, "keys", "admin-key"))
	if err != nil {
		t.Fatal(err)
	}
	s.key = strings.TrimSpace(string(key))
	id := s.create("")
	s.want(200, "POST", box(id, "/commands/run"), `{"command":"sleep 1000 & echo $! >f","background":true}`)
	stillRuns := func(s *server) {
		t.Helper()
		got := s.want(200, "POST", box(id, "/commands/run"), `{"command":"kill -0 $(cat f) && echo runs"}`)
		if got.field("output") != "runs\n" {
			t.Errorf("got %v", got)
		}
	}

	pid := redisPID(t, data)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "there is another Redis", func() bool {
		r, err := s.try(t.Context(), "GET", box(id, ""), "")
		if err == nil && r.status != 200 && r.field("error") != "store_unavailable" {
			t.Fatalf("got %v", r)
		}
		return strings.Contains(s.log.String(), "starting it anew") && err == nil && r.status == 200
	})
	stillRuns(s)

	s.end(syscall.SIGKILL)
	s = begin()
	s.key = strings.TrimSpace(string(key))
	stillRuns(s)
	s.end(syscall.SIGTERM)
	if st, err := rt.Inspect(t.Context(), id); err != nil || st.Running {
		t.Errorf("nobody serves it, and it is %+v, %v", st, err)
	}
	if redisRuns(data) {
		t.Error("redis-server is left running")
	}
	if err := rt.Delete(t.Context(), id); err != nil {
		t.Error(err)
	}
}

// TestRedisThatKeepsEnding has a Redis that cannot be kept up: the program ends
// and says why.
func TestRedisThatKeepsEnding(t *testing.T) {
	testutil.NeedProgram(t, "redis-server")
	data := dataDir(t)
	s := start(t, data)
	last := 0
	testutil.Eventually(t, "it gives up", func() bool {
		if pid := redisPID(t, data); pid != last && pid > 0 {
			last = pid
			_ = syscall.Kill(pid, syscall.SIGKILL) // one that ended is as good
		}
		select {
		case <-s.done:
			return true
		default:
			return false
		}
	})
	if code := s.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(s.log.String(), "ended 6 times") {
		t.Errorf("exit code %d: %s", code, s.log)
	}
}

// redisPID asks the embedded Redis who it is; 0 when it does not say.
func redisPID(t *testing.T, data string) int {
	t.Helper()
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: filepath.Join(data, "redis", "redis.sock"), MaxRetries: -1})
	defer client.Close()
	info, err := client.Info(t.Context(), "server").Result()
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(info, "process_id:")
	digits, _, _ := strings.Cut(rest, "\r")
	pid, _ := strconv.Atoi(digits)
	return pid
}
