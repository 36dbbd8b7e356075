package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

// binary is the program under test.
var binary string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sessionapi")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "cubepod-sessionapi")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// result is what a run of the program that ends by itself left.
type result struct {
	stdout, stderr string
	code           int
}

func runProgram(t *testing.T, env []string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = t.TempDir() // where a program that wrongly starts puts its data
	cmd.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

func TestHelp(t *testing.T) {
	got := runProgram(t, nil, "--help")
	if got.code != 0 || got.stderr != "" {
		t.Errorf("got %+v", got)
	}
	for _, want := range []string{
		"--listen", "CUBEPOD_LISTEN", `":8090"`,
		"--metrics-listen", `"127.0.0.1:8091"`,
		"--redis", "CUBEPOD_REDIS", `"embedded"`,
		"--runtime", "CUBEPOD_RUNTIME", "--templates", "CUBEPOD_TEMPLATES", "--api-keys", "CUBEPOD_API_KEYS",
		"--master-key", "CUBEPOD_MASTER_KEY_FILE", "--tunnel-key", "CUBEPOD_TUNNEL_KEY_FILE", "--panel-keys", "CUBEPOD_PANEL_KEYS",
		"--panel-base-url", "CUBEPOD_PANEL_BASE_URL", "--expose-cdp", "--desktop", "--allow-upstream", "CUBEPOD_ALLOW_UPSTREAM",
		"--data", "CUBEPOD_DATA", `"./.cubepod"`, "--guest-dir",
		"--container-runtime", "CUBEPOD_CONTAINER_RUNTIME", "--require-firewall", "CUBEPOD_REQUIRE_FIREWALL", "firewall",
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("--help does not say %s", want)
		}
	}
}

func TestBadSettings(t *testing.T) {
	for _, c := range []struct {
		name string
		env  []string
		args []string
		want string
	}{
		{"unknown flag", nil, []string{"--bogus"}, "bogus"},
		{"argument", nil, []string{"serve"}, `"serve"`},
		{"runtime", nil, []string{"--runtime", "xen"}, "--runtime"},
		{"requirement", nil, []string{"--require-firewall=perhaps"}, "require-firewall"},
		{"bool", nil, []string{"--desktop=maybe"}, "desktop"},
		{"bool in the environment", []string{"CUBEPOD_EXPOSE_CDP=maybe"}, nil, "CUBEPOD_EXPOSE_CDP"},
		{"prefix", nil, []string{"--allow-upstream", "10.0.0.1"}, "10.0.0.1"},
		{"base URL", nil, []string{"--panel-base-url", "panels.example.com"}, "--panel-base-url"},
		{"base URL with a query", nil, []string{"--panel-base-url", "https://x/?a"}, "--panel-base-url"},
		{"placeholder elsewhere", nil, []string{"--panel-base-url", "https://x/{sandbox}"}, "--panel-base-url"},
		{"keys for a shared Redis", nil, []string{"--redis", "redis://127.0.0.1:1"}, "--api-keys"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := runProgram(t, c.env, c.args...)
			if got.code != 2 || got.stdout != "" || !strings.Contains(got.stderr, c.want) || strings.Count(got.stderr, "\n") != 2 {
				t.Errorf("got %+v, want code 2 and %q", got, c.want)
			}
		})
	}
}

// server is a running program.
type server struct {
	t    *testing.T
	cmd  *exec.Cmd
	data string
	url  string
	key  string // of its caller; empty is the cluster's
	log  *logBuffer
	done chan struct{}
}

// freeAddress gives an address that nobody listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// dataDir gives a directory whose path is short enough for sockets.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "data")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func start(t *testing.T, data string, args ...string) *server {
	t.Helper()
	address := freeAddress(t)
	s := &server{t: t, data: data, url: "http://" + address, log: &logBuffer{}, done: make(chan struct{})}
	s.cmd = exec.Command(binary, append([]string{"--data", data, "--listen", address, "--metrics-listen", "127.0.0.1:0"}, args...)...)
	s.cmd.Stderr = s.log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.done)
		s.cmd.Wait()
	}()
	t.Cleanup(func() { s.end(syscall.SIGTERM) })
	testutil.Eventually(t, "the API answers", func() bool {
		status, _ := s.get("/health")
		select {
		case <-s.done:
			t.Fatalf("it ended: %s", s.log)
		default:
		}
		return status == 200
	})
	return s
}

func (s *server) end(sig os.Signal) {
	s.t.Helper()
	s.cmd.Process.Signal(sig) // one that ended is as good
	<-s.done
}

func (s *server) get(path string) (int, string) {
	req, err := http.NewRequestWithContext(context.Background(), "GET", s.url+path, nil) // also from cleanups
	if err != nil {
		s.t.Fatal(err)
	}
	if key, err := os.ReadFile(filepath.Join(s.data, "keys", "admin-key")); err == nil {
		req.Header.Set("X-API-Key", strings.TrimSpace(string(key)))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

func redisRuns(data string) bool {
	c, err := net.Dial("unix", filepath.Join(data, "redis", "redis.sock"))
	if err == nil {
		c.Close()
	}
	return err == nil
}

func TestEmbeddedRedis(t *testing.T) {
	testutil.NeedProgram(t, "redis-server")
	data := dataDir(t)
	metrics := freeAddress(t)
	s := start(t, data, "--metrics-listen", metrics)
	if status, body := s.get("/sandboxes"); status != 200 {
		t.Fatalf("got %d %s", status, body)
	}
	if _, body := (&server{t: t, url: "http://" + metrics}).get("/metrics"); !strings.Contains(body, `cubepod_desktop_activations_total{result="ok"} 0`) {
		t.Errorf("metrics: %.200s", body)
	}
	if status, _ := s.get("/metrics"); status != 404 {
		t.Errorf("the API shows metrics: %d", status)
	}
	for _, name := range []string{"master", "tunnel", "panel", "api", "admin-key"} {
		fi, err := os.Stat(filepath.Join(data, "keys", name))
		if err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("key file %s: %v, %v", name, fi, err)
		}
	}
	key, _ := os.ReadFile(filepath.Join(data, "keys", "admin-key"))
	if strings.Contains(s.log.String(), strings.TrimSpace(string(key))) {
		t.Error("the API key is in the log")
	}

	got := runProgram(t, nil, "--data", data, "--listen", freeAddress(t), "--metrics-listen", "")
	if got.code != 1 || !strings.Contains(got.stderr, data) || !strings.Contains(got.stderr, "--data") {
		t.Errorf("a second one on the same data: got %+v", got)
	}
	busy := strings.TrimPrefix(s.url, "http://")
	got = runProgram(t, nil, "--data", dataDir(t), "--listen", busy, "--metrics-listen", "")
	if got.code != 1 || !strings.Contains(got.stderr, busy) || !strings.Contains(got.stderr, "--listen") {
		t.Errorf("a second one at the same address: got %+v", got)
	}

	s.end(syscall.SIGTERM)
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d: %s", code, s.log)
	}
	if redisRuns(data) {
		t.Error("redis-server is left running")
	}

	// Killed, it leaves its Redis; the next one ends that and goes on.
	s = start(t, data)
	s.end(syscall.SIGKILL)
	if !redisRuns(data) {
		t.Error("the test's premise is gone: nothing was left")
	}
	// With a key in the panel file that is for checking only.
	panel := filepath.Join(data, "keys", "panel")
	line, err := os.ReadFile(panel)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(panel, append([]byte("pub ed25519:"+strings.Repeat("QUFB", 10)+"QUE= iss=maker\n"), line...), 0o600); err != nil {
		t.Fatal(err)
	}
	s = start(t, data)
	if again, _ := os.ReadFile(filepath.Join(data, "keys", "admin-key")); string(again) != string(key) {
		t.Error("there is another API key")
	}
	if status, _ := s.get("/sandboxes"); status != 200 {
		t.Errorf("got %d", status)
	}
	s.end(os.Interrupt)
	if redisRuns(data) {
		t.Error("redis-server is left running")
	}
}

func TestWaitsForRedis(t *testing.T) {
	redis := testutil.StartRedis(t)
	redis.Stop(t)
	keys := dataDir(t)
	write := func(name, content string) string {
		path := filepath.Join(keys, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	secret := "k base64:" + strings.Repeat("QUFB", 11) + "\n"
	s := start(t, dataDir(t), "--redis", redis.URL,
		"--api-keys", write("api", "a sha256:"+strings.Repeat("00", 32)+"\n"),
		"--master-key", write("master", secret), "--tunnel-key", write("tunnel", secret), "--panel-keys", write("panel", secret))
	if status, _ := s.get("/ready"); status != 503 {
		t.Errorf("ready without a store: %d", status)
	}
	testutil.Eventually(t, "it says what it waits for", func() bool { return strings.Contains(s.log.String(), "session API waits") })
	redis.Start(t)
	// The runtime may be missing here, the store may not.
	testutil.Eventually(t, "the store is found", func() bool {
		_, body := s.get("/ready")
		return body != "" && !strings.Contains(body, "store_unavailable")
	})
}
