package compose_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/png"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi/runtimetest"
)

// bluePage is what the sandbox's browser shows, and the viewer must show again.
const bluePage = `data:text/html,<style>body{background:%232266cc}</style>`

// machineRedis has this machine's redis-server in place of a registry's image.
const machineRedis = `services:
  redis:
    image: ` + runtimetest.Image + `
    volumes: ["/usr:/usr:ro"]
`

// TestUp does what README.md says, on a host of the test's own.
func TestUp(t *testing.T) {
	if testing.Short() {
		testutil.Skip(t, "starts an engine")
	}
	for _, p := range []string{"dockerd", "iptables", "redis-server", "chromium"} {
		testutil.NeedProgram(t, p)
	}
	compose := needCompose(t)
	runtimetest.NeedImages(t, root, "desktop", "edge", "sessionapi")
	if !testutil.InOwnNetwork(t) {
		return
	}
	engine := runtimetest.StartEngine(t, runtimetest.Image, "cubepod/desktop:dev", "cubepod/edge:dev", "cubepod/sessionapi:dev")
	t.Setenv("DOCKER_SOCKET", engine.Socket)
	s := &stack{t: t, dir: copyFolder(t), compose: append(compose, "-p", "cubepod", "-f", "compose.yaml", "-f", "redis.yaml")}
	s.write("redis.yaml", machineRedis)
	s.do("up", "-d")

	testutil.Eventually(t, "the API is ready", func() bool { return s.call("GET", "/ready", nil, nil) == 200 })
	var ready struct{ Warnings []string }
	s.call("GET", "/ready", nil, &ready)
	if len(ready.Warnings) > 0 {
		t.Errorf("warnings: %q", ready.Warnings)
	}
	var sandbox struct{ SandboxID string }
	if code := s.call("POST", "/sandboxes", map[string]any{"templateID": "desktop", "timeout": 600}, &sandbox); code != 201 {
		t.Fatalf("create: %d\n%s", code, s.do("logs", "--tail", "20"))
	}
	start := "/sandboxes/" + sandbox.SandboxID + "/desktop/start"
	var desktop struct{ DesktopURL, CDPURL string }
	if code := s.call("POST", start, map[string]any{}, &desktop); code != 200 {
		t.Fatalf("desktop/start: %d\n%s", code, s.do("logs", "--tail", "20"))
	}
	if code := request(t, "PUT", desktop.CDPURL+"json/new?"+url.QueryEscape(bluePage), "", nil, nil); code != 200 {
		t.Fatalf("open a page: %d", code)
	}
	showsBlue(t, desktop.DesktopURL)

	t.Run("without a replica", func(t *testing.T) {
		s.do("kill", "-s", "SIGKILL", "api-1")
		for range 10 {
			if code := s.call("GET", "/sandboxes/"+sandbox.SandboxID, nil, nil); code != 200 {
				t.Errorf("a call: %d", code)
			}
		}
		if code := s.call("POST", start, map[string]any{}, nil); code != 200 {
			t.Errorf("desktop/start: %d", code)
		}
	})
	t.Run("a second edge", func(t *testing.T) {
		caddyfile, err := os.ReadFile("Caddyfile")
		if err != nil {
			t.Fatal(err)
		}
		// On one host they share the ports, which they would not on two.
		s.write("Caddyfile2", strings.NewReplacer("8099", "8098", "8101", "81", "8100", "80").Replace(string(caddyfile)))
		run(t, s.dir, "docker", "run", "-d", "--network", "host", "--read-only", "--cap-drop", "ALL", "--cap-add", "NET_BIND_SERVICE",
			"-v", s.dir+"/Caddyfile2:/etc/caddy/Caddyfile:ro", "-v", s.dir+"/keys/edge:/etc/cubepod/keys:ro",
			"-v", "cubepod_redis:/run/redis", "-v", "second:/data", "cubepod/edge:dev")
		testutil.Eventually(t, "it answers", func() bool { return request(t, "GET", "http://localhost:80/health", "", nil, nil) == 200 })
		showsBlue(t, strings.Replace(desktop.DesktopURL, ":8101", ":81", 1))
	})
	t.Run("a firewall that lost its rules", func(t *testing.T) {
		run(t, s.dir, "iptables", "-F", "INPUT")
		testutil.Eventually(t, "they are back", func() bool {
			out, err := exec.Command("iptables", "-S", "INPUT").Output()
			return err == nil && strings.Contains(string(out), "-i cubepod0 ")
		})
	})
	t.Run("a new template", func(t *testing.T) {
		old, err := os.ReadFile("api/templates.yaml")
		if err != nil {
			t.Fatal(err)
		}
		s.write("new.yaml", string(old)+"\nlater:\n  image: cubepod/desktop:dev\n")
		if err := os.Rename(filepath.Join(s.dir, "new.yaml"), filepath.Join(s.dir, "api/templates.yaml")); err != nil { // as editors do
			t.Fatal(err)
		}
		testutil.Eventually(t, "it can be had", func() bool {
			return s.call("POST", "/sandboxes", map[string]any{"templateID": "later", "timeout": 600}, nil) == 201
		})
	})
	t.Run("a name of somebody else", func(t *testing.T) {
		for _, port := range []string{"8100", "8101"} {
			if code := request(t, "GET", "http://127.0.0.1:"+port+"/", "", nil, nil); code != http.StatusMisdirectedRequest {
				t.Errorf("port %s: %d", port, code)
			}
		}
	})
	s.do("down")
}

// needCompose gives the command of Docker Compose, of whichever version.
func needCompose(t *testing.T) []string {
	t.Helper()
	if exec.Command("docker", "compose", "version").Run() == nil {
		return []string{"docker", "compose"}
	}
	return []string{testutil.NeedProgram(t, "docker-compose")}
}

// stack is this folder's copy, with keys, and what runs it.
type stack struct {
	t       *testing.T
	dir     string
	compose []string
}

func (s *stack) write(name, content string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stack) do(args ...string) string {
	s.t.Helper()
	return run(s.t, s.dir, s.compose[0], append(s.compose[1:len(s.compose):len(s.compose)], args...)...)
}

// call calls the API through the edge as its administrator.
func (s *stack) call(method, path string, in, out any) int {
	s.t.Helper()
	key, err := os.ReadFile(filepath.Join(s.dir, "keys/admin-key"))
	if err != nil {
		s.t.Fatal(err)
	}
	return request(s.t, method, "http://localhost:8100"+path, strings.TrimSpace(string(key)), in, out)
}

// request gives the status of an answer, 0 when there is none, and decodes it
// into out unless that is nil.
func request(t *testing.T, method, url, key string, in, out any) int {
	t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if in == nil {
		body = nil
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-Key", key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if out != nil {
		if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
			t.Fatalf("%s %s: %v", method, req.URL.Path, err)
		}
	}
	return resp.StatusCode
}

// showsBlue opens a desktop's URL in a browser and waits for the page in it.
func showsBlue(t *testing.T, url string) {
	t.Helper()
	alloc, cancel := chromedp.NewExecAllocator(t.Context(), chromedp.ExecPath(testutil.NeedProgram(t, "chromium")),
		chromedp.NoSandbox, chromedp.Headless, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.WindowSize(1000, 800))
	defer cancel()
	page, cancel := chromedp.NewContext(alloc)
	defer cancel()
	if err := chromedp.Do(page, chromedp.Navigate(url)); err != nil {
		t.Fatal("open the desktop") // the error has the URL
	}
	last := ""
	defer func() {
		if t.Failed() {
			t.Logf("the last colour seen was %s", last)
		}
	}()
	testutil.Eventually(t, "the viewer shows the sandbox's page", func() bool {
		data, err := chromedp.Run(page, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		img, err := png.Decode(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		r, g, b, _ := img.At(img.Bounds().Dx()/2, img.Bounds().Dy()/2).RGBA()
		last = fmt.Sprintf("%02x%02x%02x", r>>8, g>>8, b>>8)
		return last == "2266cc"
	})
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
