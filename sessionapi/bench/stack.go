package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// stack is a Redis and some replicas of the API.
type stack struct {
	cfg      config
	dir      string
	redis    *exec.Cmd
	rdb      *redis.Client
	flags    []string
	replicas []*replica
}

// replica is one API server, called over connections that are kept.
type replica struct {
	cmd  *exec.Cmd
	url  string
	http *http.Client
}

const (
	apiKey     = "cp_bench"
	bootPause  = 20 * time.Millisecond
	bootTries  = 1000
	deployment = "cubepodbench" // the Docker network
)

func newStack(ctx context.Context, cfg config, warm int) (_ *stack, err error) {
	s := &stack{cfg: cfg}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "bench"); err != nil {
		return nil, err
	}
	socket := filepath.Join(s.dir, "redis.sock")
	s.redis = exec.Command("redis-server", "--port", "0", "--unixsocket", socket, "--dir", s.dir, "--appendonly", "yes", "--save", "", "--logfile", filepath.Join(s.dir, "redis.log"))
	if err := s.redis.Start(); err != nil {
		return nil, err
	}
	s.rdb = redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	if err := eventually(ctx, func() bool { return s.rdb.Ping(ctx).Err() == nil }); err != nil {
		return nil, fmt.Errorf("redis-server: %w", err)
	}
	file := func(name, content string) string {
		path := filepath.Join(s.dir, name)
		if werr := os.WriteFile(path, []byte(content), 0o600); werr != nil {
			err = werr
		}
		return path
	}
	secret := "k base64:" + strings.Repeat("QUFB", 11) + "\n"
	s.flags = []string{
		"--runtime", "docker", "--network", deployment, "--redis", "unix://" + socket, "--metrics-listen", "", "--rate-limit", "0",
		"--api-keys", file("api", fmt.Sprintf("bench sha256:%x\n", sha256.Sum256([]byte(apiKey)))),
		"--templates", file("templates", fmt.Sprintf("base: {image: %q, warm: %d}\ndesktop: {image: %q, desktop: true}\n", cfg.image, warm, cfg.desktop)),
		"--master-key", file("master", secret), "--tunnel-key", file("tunnel", secret), "--panel-keys", file("panel", secret),
	}
	return s, err
}

// start starts one more replica.
func (s *stack) start(ctx context.Context, env ...string) (*replica, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	l.Close()
	r := &replica{url: "http://" + address, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
	log, err := os.Create(filepath.Join(s.dir, fmt.Sprintf("api%d.log", len(s.replicas))))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	r.cmd = exec.Command(filepath.Join(s.cfg.bin, "cubepod-sessionapi"), append([]string{"--listen", address, "--data", filepath.Join(s.dir, "data")}, s.flags...)...)
	r.cmd.Env = append(os.Environ(), env...)
	r.cmd.Stderr = log
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	s.replicas = append(s.replicas, r)
	err = eventually(ctx, func() bool {
		status, _, err := r.call(ctx, "GET", "/ready", "")
		return err == nil && status == http.StatusOK
	})
	if err != nil {
		out, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("the API is not ready: %w\n%s", err, out)
	}
	return r, nil
}

// close ends all of it, after deleting the sandboxes.
func (s *stack) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i, r := range s.replicas {
		if i == 0 {
			r.deleteAll(ctx)
		}
		_ = r.cmd.Process.Signal(syscall.SIGTERM)
		_ = r.cmd.Wait()
	}
	if out, err := exec.Command("docker", "ps", "-aq", "--filter", "network="+deployment).Output(); err == nil {
		for _, id := range strings.Fields(string(out)) { // standbys
			_ = exec.Command("docker", "rm", "-fv", id).Run()
		}
	}
	if out, err := exec.Command("docker", "volume", "ls", "-q", "--filter", "label=cubepod.sandbox").Output(); err == nil {
		for _, name := range strings.Fields(string(out)) {
			_ = exec.Command("docker", "volume", "rm", name).Run() // those of others are in use
		}
	}
	if s.redis != nil && s.redis.Process != nil {
		s.rdb.Close()
		_ = s.redis.Process.Signal(syscall.SIGTERM)
		_ = s.redis.Wait()
	}
	_ = os.RemoveAll(s.dir)
}

func (r *replica) call(ctx context.Context, method, path, body string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("X-API-Key", apiKey)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, data, err
}

// must calls and reports another status as an error.
func (r *replica) must(ctx context.Context, status int, method, path, body string) ([]byte, error) {
	got, data, err := r.call(ctx, method, path, body)
	if err == nil && got != status {
		err = fmt.Errorf("%s %s: %d %s", method, path, got, bytes.TrimSpace(data))
	}
	return data, err
}

func (r *replica) create(ctx context.Context, template string) (string, error) {
	data, err := r.must(ctx, http.StatusCreated, "POST", "/sandboxes", `{"templateID":"`+template+`","timeout":3600}`)
	if err != nil {
		return "", err
	}
	var view struct{ SandboxID string }
	err = json.Unmarshal(data, &view)
	return "/sandboxes/" + view.SandboxID, err
}

func (r *replica) deleteAll(ctx context.Context) {
	data, err := r.must(ctx, http.StatusOK, "GET", "/sandboxes?state=running,failed", "")
	var views []struct{ SandboxID string }
	if err != nil || json.Unmarshal(data, &views) != nil {
		return
	}
	for _, v := range views {
		_, _, _ = r.call(ctx, "DELETE", "/sandboxes/"+v.SandboxID, "")
	}
}

// rss is the replica's memory in MiB.
func (r *replica) rss() (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1024, err
		}
	}
	return 0, errors.New("no VmRSS")
}

// cpu is the processor time the replica has used.
func (r *replica) cpu() (time.Duration, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", r.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, task := range tasks {
		data, err := os.ReadFile(task)
		if err != nil {
			continue // it ended
		}
		ns, err := strconv.ParseInt(strings.Fields(string(data))[0], 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

// eventually waits for ok, for some 20 seconds.
func eventually(ctx context.Context, ok func() bool) error {
	tick := time.NewTicker(bootPause)
	defer tick.Stop()
	for range bootTries {
		if ok() {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errors.New("it did not come up in time")
}
