package desktop_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/podd/desktop"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// supervisor is a program in the ctl's place: it writes down how it was called
// and ends when the file "go" is there.
type supervisor struct {
	t        *testing.T
	dir, ctl string
}

func newSupervisor(t *testing.T) *supervisor {
	t.Helper()
	dir, err := os.MkdirTemp("", "podd-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o777)
	s := &supervisor{t, dir, filepath.Join(dir, "ctl")}
	script := fmt.Sprintf("#!/bin/sh\necho $1 $(id -u):$(id -g) $HOME $SECRET >> %[1]s/calls\n"+
		"test $1 = start && until test -e %[1]s/go; do sleep 0.01; done\nexit $(cat %[1]s/exit 2>/dev/null || echo 0)\n", dir)
	if err := os.WriteFile(s.ctl, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *supervisor) set(name, content string) {
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// calls gives the verbs it was called with.
func (s *supervisor) calls() string {
	data, _ := os.ReadFile(s.dir + "/calls")
	var verbs []string
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) != 3 || f[2] != "/home/cubeplex" || os.Geteuid() == 0 && f[1] != "1000:1000" {
			s.t.Errorf("called as %q", line)
		}
		verbs = append(verbs, f[0])
	}
	return strings.Join(verbs, " ")
}

// freeAddr is an address that nobody listens on.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func start(t *testing.T, ctl, chromium string) (*desktop.Desktop, func() (int, string)) {
	t.Helper()
	addr := freeAddr(t)
	d := desktop.New(ctl, chromium, log.New(io.Discard, "", 0))
	if err := d.Listen(addr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, func() (int, string) {
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + addr + "/json/version")
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer resp.Body.Close()
		data, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(data)
	}
}

func TestARequestWakesTheDesktop(t *testing.T) {
	t.Setenv("SECRET", "podd's own")
	s, chromium := newSupervisor(t), freeAddr(t)
	_, get := start(t, s.ctl, chromium)
	answers := make(chan int)
	for range 3 {
		go func() { status, _ := get(); answers <- status }()
	}
	testutil.Eventually(t, "the supervisor is called", func() bool { return s.calls() == "start" })
	l, err := net.Listen("tcp", chromium)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") })}
	served := make(chan struct{})
	go func() { browser.Serve(l); close(served) }()
	s.set("go", "")
	for range 3 {
		if status := <-answers; status != http.StatusOK {
			t.Errorf("got %d", status)
		}
	}
	if s.calls() != "start" {
		t.Errorf("got calls %s", s.calls())
	}
	browser.Close()
	<-served
}

func TestStop(t *testing.T) {
	s := newSupervisor(t)
	d, get := start(t, s.ctl, freeAddr(t))
	woken := make(chan int)
	go func() { status, _ := get(); woken <- status }()
	testutil.Eventually(t, "the supervisor is called", func() bool { return s.calls() == "start" })
	// The start that is under way is broken off.
	if err := d.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if status := <-woken; status < 500 {
		t.Errorf("got %d", status)
	}
	if status, body := get(); status != http.StatusServiceUnavailable || !strings.Contains(body, `"stopping"`) {
		t.Errorf("got %d %s", status, body)
	}
	if s.calls() != "start stop" {
		t.Errorf("got calls %s", s.calls())
	}
	d.Allow()
	s.set("go", "")
	s.set("exit", "1")
	if status, body := get(); status != http.StatusBadGateway || !strings.Contains(body, `"desktop_start"`) {
		t.Errorf("got %d %s", status, body)
	}
	if err := d.Stop(context.Background()); err == nil || s.calls() != "start stop start stop" {
		t.Errorf("got %v, calls %s", err, s.calls())
	}
}
