package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/desktopctl/boxtest"
	"github.com/cubeplexai/cubepod/desktopctl/chrome"
	"github.com/cubeplexai/cubepod/desktopctl/x11"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// front is where clients look for the browser.
const front = chrome.DevTools("127.0.0.1:9222")

func pages(t *testing.T) []chrome.Target {
	t.Helper()
	list, err := front.Pages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// site answers every page and remembers what was asked for and with which
// cookie. /login sets one.
type site struct {
	*httptest.Server
	seen chan string
}

func newSite(t *testing.T) *site {
	s := &site{seen: make(chan string, 100)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/favicon.ico" {
			http.NotFound(w, r)
			return
		}
		if r.URL.Path == "/login" {
			w.Header().Set("Set-Cookie", "login=kept; Max-Age=9999; Path=/")
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<title>%s</title><body style='background:#00f'>", r.URL.Path)
		s.seen <- r.URL.RequestURI() + " " + r.Header.Get("Cookie")
	}))
	t.Cleanup(s.Close)
	return s
}

// next is the next request the site gets.
func (s *site) next(t *testing.T) string {
	t.Helper()
	select {
	case r := <-s.seen:
		return r
	case <-time.After(testutil.Patience):
		t.Fatal("the browser asks for nothing")
		return ""
	}
}

func TestResolution(t *testing.T) {
	if !enter(t) {
		return
	}
	before := start(t)
	for _, want := range []string{"1920x1080x24", "800x600x24", "3840x2160x24", "800x600x24"} {
		after := start(t, "--resolution", want)
		if after.Resolution != want {
			t.Errorf("resolution %s, want %s", after.Resolution, want)
		}
		if again := start(t); again.Resolution != want {
			t.Errorf("a start without flags changed %s to %s", want, again.Resolution)
		}
		for name, pid := range before.Pids {
			if after.Pids[name] != pid {
				t.Errorf("%s did not survive %s", name, want)
			}
		}
		conn, err := x11.Dial(t.Context(), ":99")
		if err != nil {
			t.Fatal(err)
		}
		w, h, depth := conn.Size()
		conn.Close()
		if got := fmt.Sprintf("%dx%dx%d", w, h, depth); got != want {
			t.Errorf("the X server says %s, want %s", got, want)
		}
		testutil.Eventually(t, "the VNC server says "+want, func() bool { return rfbSize(t) == want })
	}
	if _, status, output := ctl("status"); status.Resolution != "800x600x24" {
		t.Errorf("status: %s", output)
	}
}

// rfbSize is the screen's size as a VNC client learns it.
func rfbSize(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", runDir+"/vnc.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	conn.SetDeadline(deadline)
	buf := make([]byte, 256)
	read := func(n int) []byte {
		if _, err := io.ReadFull(conn, buf[:n]); err != nil {
			t.Fatal(err)
		}
		return buf[:n]
	}
	fmt.Fprint(conn, "RFB 003.008\n")
	read(12)
	read(int(read(1)[0])) // security types
	conn.Write([]byte{1}) // none
	read(4)               // result
	conn.Write([]byte{1}) // shared
	b := read(4)          // server init
	return fmt.Sprintf("%dx%dx24", int(b[0])<<8|int(b[1]), int(b[2])<<8|int(b[3]))
}

func TestURL(t *testing.T) {
	if !enter(t) {
		return
	}
	s := newSite(t)
	start(t, "--url", s.URL+"/one")
	if got := s.next(t); got != "/one " {
		t.Errorf("asked for %q", got)
	}
	odd := s.URL + "/two?a=%20b&c=1+1&d=e f#part"
	for _, url := range []string{s.URL + "/one", odd, odd} {
		start(t, "--url", url)
	}
	if got, want := s.next(t), "/two?a=%20b&c=1+1&d=e%20f "; got != want {
		t.Errorf("asked for %q, want %q", got, want)
	}
	testutil.Eventually(t, "two tabs", func() bool { return len(pages(t)) == 2 })
	start(t)
	if n := len(pages(t)); n != 2 {
		t.Errorf("%d tabs after a start without flags, want 2", n)
	}
}

func TestLoginSurvivesStop(t *testing.T) {
	if !enter(t) {
		return
	}
	s := newSite(t)
	start(t, "--url", s.URL+"/login")
	s.next(t)
	if code, _, output := ctl("stop"); code != 0 {
		t.Fatal(output)
	}
	start(t, "--url", s.URL+"/home")
	if got := s.next(t); got != "/home login=kept" {
		t.Errorf("asked for %q, want the cookie", got)
	}
}

func TestLastTabClosed(t *testing.T) {
	if !enter(t) {
		return
	}
	start(t)
	for _, p := range pages(t) {
		resp, err := http.Get("http://" + string(front) + "/json/close/" + p.ID)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	start(t)
	if len(pages(t)) == 0 {
		t.Error("no tab after start")
	}
}

func TestFocusAndScreenshot(t *testing.T) {
	if !enter(t) {
		return
	}
	if code, r, output := ctl("screenshot", "/tmp/none.png"); code != 1 || r.Error != "not_running" {
		t.Errorf("screenshot of nothing: exit code %d, %s", code, output)
	}
	s := newSite(t)
	start(t)
	blank := pages(t)[0].ID
	start(t, "--url", s.URL+"/blue") // opens in front
	blue := func() bool {
		r, g, b, _ := screenshot(t).At(640, 700).RGBA()
		return r == 0 && g == 0 && b == 0xffff
	}
	testutil.Eventually(t, "a blue page", blue)
	if code, r, output := ctl("focus", blank); code != 0 || r.Status != "ok" {
		t.Errorf("focus: exit code %d, %s", code, output)
	}
	testutil.Eventually(t, "the other tab", func() bool { return !blue() })
	if code, r, output := ctl("focus", "nonesuch"); code != 1 || r.Error != "target_not_found" {
		t.Errorf("focus on nothing: exit code %d, %s", code, output)
	}
}

func screenshot(t *testing.T) image.Image {
	t.Helper()
	path := filepath.Join(t.TempDir(), "screen.png")
	if code, _, output := ctl("screenshot", path); code != 0 {
		t.Fatal(output)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	if size := img.Bounds().Size(); size != (image.Point{1280, 800}) {
		t.Errorf("the picture is %v", size)
	}
	return img
}

// TestRemains starts over everything that a dead stack and another host can
// leave behind.
func TestRemains(t *testing.T) {
	if !enter(t) {
		return
	}
	start(t)
	ctl("stop")
	prefs := filepath.Join(profile, "Default", "Preferences")
	var all map[string]any
	b, err := os.ReadFile(prefs)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	all["profile"].(map[string]any)["exit_type"] = "Crashed"
	b, _ = json.Marshal(all)
	write := func(path, content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(prefs, string(b))
	write(filepath.Join(profile, "DevToolsActivePort"), "9223\n/devtools/browser/none")
	// Our own pid lives, but is no X server, browser or daemon.
	pid := os.Getpid()
	write("/tmp/.X99-lock", fmt.Sprintf("%10d\n", pid))
	if l, err := net.Listen("unix", "/tmp/.X11-unix/X99"); err != nil {
		t.Fatal(err)
	} else {
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		l.Close()
	}
	for _, name := range components {
		write(filepath.Join(runDir, name+".pid"), fmt.Sprintf("%d\n%d\n", pid, 1))
	}
	for _, owner := range []string{"elsewhere-32", fmt.Sprintf("%s-%d", boxtest.Hostname, pid)} {
		for _, name := range []string{"SingletonLock", "SingletonCookie", "SingletonSocket"} {
			os.Remove(filepath.Join(profile, name))
			if err := os.Symlink(owner, filepath.Join(profile, name)); err != nil {
				t.Fatal(err)
			}
		}
		start(t)
		ctl("stop")
	}
	if b, err = os.ReadFile(prefs); err != nil || strings.Contains(string(b), `"exit_type":"Crashed"`) {
		t.Errorf("preferences still tell of a crash, %v", err)
	}
}

func TestErrors(t *testing.T) {
	if !enter(t) {
		return
	}
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"depth", []string{"start", "--resolution", "1280x800x16"}, "invalid_resolution"},
		{"no depth", []string{"start", "--resolution", "1280x800"}, "invalid_resolution"},
		{"too small", []string{"start", "--resolution", "319x200x24"}, "invalid_resolution"},
		{"too large", []string{"start", "--resolution", "3840x2161x24"}, "invalid_resolution"},
		{"negative", []string{"start", "--resolution", "-1280x800x24"}, "invalid_resolution"},
		{"file url", []string{"start", "--url", "file:///etc/passwd"}, "invalid_url"},
		{"script url", []string{"start", "--url", "javascript:alert(1)"}, "invalid_url"},
		{"url that looks like a flag", []string{"start", "--url", "--no-sandbox"}, "invalid_url"},
		{"unknown flag", []string{"start", "--colour"}, "invalid_arguments"},
		{"stray argument", []string{"stop", "now"}, "invalid_arguments"},
		{"unknown command", []string{"restart"}, "unknown_command"},
	}
	for _, tt := range tests {
		if code, r, output := ctl(tt.args...); code != 1 || r.Status != "error" || r.Error != tt.want || r.Message == "" {
			t.Errorf("%s: exit code %d, want error %s: %s", tt.name, code, tt.want, output)
		}
	}
	t.Setenv("CUBEPOD_CHROMIUM", "/bin/false")
	if code, r, output := ctl("start"); code != 1 || r.Error != "chromium_exited" {
		t.Errorf("a browser that ends: exit code %d, %s", code, output)
	}
	if _, r, output := ctl("status"); r.Status != "degraded" || r.Pids["chromium"] != 0 {
		t.Errorf("then status: %s", output)
	}
	t.Setenv("CUBEPOD_CHROMIUM", "/nonesuch")
	if code, r, output := ctl("start"); code != 1 || r.Error != "browser_missing" {
		t.Errorf("no browser: exit code %d, %s", code, output)
	}
}
