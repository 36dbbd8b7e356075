package caddymodule_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// TestShutdownEndsStreams sends SIGTERM to an edge with streams open: they are
// told, and the process ends although its clients stay.
func TestShutdownEndsStreams(t *testing.T) {
	guest := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ws" {
			wsEcho(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	e := startEdge(t, guest, edgeOptions{})
	bin := filepath.Join(e.dir, "edge")
	if out, err := exec.Command("go", "build", "-o", bin, "./caddy").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	port := freePort(t)
	config := filepath.Join(e.dir, "Caddyfile")
	if err := os.WriteFile(config, fmt.Appendf(nil, `{
	admin off
	auto_https off
	grace_period 20s
	cubepod {
		redis %[1]s
		panel_keys %[2]s/panel
		tunnel_key %[2]s/tunnel
		local_sockets %[2]s/sockets
	}
}
http://localhost:%[3]d {
	bind 127.0.0.1
	cubepod_panel
}
`, e.redis.URL, e.dir, port), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "run", "--config", config, "--adapter", "caddyfile")
	cmd.Env = append(os.Environ(), "HOME="+e.dir, "XDG_CONFIG_HOME="+e.dir, "XDG_DATA_HOME="+e.dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the process
	t.Cleanup(func() { cmd.Process.Kill() })
	e.url = fmt.Sprintf("http://localhost:%d", port)
	testutil.Eventually(t, "the edge serves", func() bool {
		resp, err := client.Get(e.panel(3000) + "/x?nothing")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == 200
	})
	ws := e.dial(e.panel(3000) + "/ws")
	e.ping(ws, "x")
	events, err := client.Get(e.panel(3000) + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	if line, err := bufio.NewReader(events.Body).ReadString('\n'); err != nil || line != "data: 1\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code, reason := e.closeStatus(ws); code != 1001 || reason != "shutdown" {
		t.Errorf("got %d %q", code, reason)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("got %v", err)
		}
	case <-time.After(testutil.Patience):
		t.Error("still there")
	}
}

// TestStreamSurvivesRedis takes Redis away from open streams and gives it back.
func TestStreamSurvivesRedis(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(wsEcho), edgeOptions{})
	c := e.dial(e.panel(3000) + "/ws")
	e.ping(c, "before")
	e.redis.Stop(t)
	e.ping(c, "while it is away")
	again := e.dial(e.panel(3000) + "/ws")
	e.ping(again, "a new one")
	e.redis.Start(t)
	e.update(func(r *session.Record) { r.Ports[4000] = session.Port{} })
	testutil.Eventually(t, "the edge reads again", func() bool {
		status, _ := e.status(e.panel(4000) + "/")
		return status == 502
	})
	e.ping(c, "after")
	e.ping(again, "after")
	e.update(func(r *session.Record) { r.Gen++ })
	if code, reason := e.closeStatus(c); code != 1008 || reason != "revoked" {
		t.Errorf("got %d %q", code, reason)
	}
	if code, _ := e.closeStatus(again); code != 1008 {
		t.Errorf("got %d", code)
	}
}

// TestRange passes ranges and conditions through.
func TestRange(t *testing.T) {
	content := strings.Repeat("0123456789", 1000)
	e := startEdge(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", `"v1"`)
		http.ServeContent(w, r, "x.bin", time.Time{}, strings.NewReader(content))
	}), edgeOptions{})
	panel := e.panel(3000) + "/x.bin"
	if resp, body := e.get(panel, "Range", "bytes=5-14"); resp.StatusCode != 206 || body != "5678901234" || resp.Header.Get("Content-Range") != "bytes 5-14/10000" {
		t.Errorf("got %d %q %v", resp.StatusCode, body, resp.Header)
	}
	if resp, body := e.get(panel, "If-None-Match", `"v1"`); resp.StatusCode != 304 || body != "" {
		t.Errorf("got %d %q", resp.StatusCode, body)
	}
	if resp, _ := e.do(http.MethodHead, panel, nil); resp.StatusCode != 200 || resp.ContentLength != 10000 {
		t.Errorf("HEAD: got %d, %d", resp.StatusCode, resp.ContentLength)
	}
}
