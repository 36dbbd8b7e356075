package main_test

import (
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/coder/websocket"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

// The blue that the sandbox's page shows and the viewer must show again.
const red, green, blue = 0x22, 0x66, 0xcc

const typingPage = `data:text/html,<title>typing</title><body style="margin:0;background:%232266cc">` +
	`<textarea id=a autofocus style="position:fixed;top:10px;left:10px;width:400px;height:120px;font-size:30px"></textarea>` +
	`<script>clicks=0;onclick=()=>clicks++</script>`

// TestMainJob walks the whole way of a user: a stack as `make run` starts it, a
// sandbox, signed URLs, the live browser and the terminal in iframes of another
// origin, pause and resume, and an end that leaves nothing behind.
func TestMainJob(t *testing.T) {
	needStack(t)
	data := shortTempDir(t)
	r := startStack(t, data)

	t.Run("commands and files", r.testCommandsAndFiles)
	t.Run("viewer and terminal in iframes", r.testPanels)
	t.Run("panels over HTTPS", r.testHTTPS)
	t.Run("refused tokens", r.testRefusedTokens)
	t.Run("hostile page", r.testHostilePage)
	t.Run("sandboxes are apart", r.testIsolation)
	t.Run("a template without a desktop", r.testNoDesktop)
	t.Run("pause and resume", r.testPauseResume)
	t.Run("console", r.testConsole)
	if t.Failed() {
		return
	}

	r.sh(t, r.SandboxID, "echo kept > /workspace/kept")
	left := descendants(t, r.cmd.Process.Pid)
	if len(left) < 10 {
		t.Fatalf("the stack has only %d processes: this proves nothing", len(left))
	}
	r.stop(t)
	for _, p := range left {
		if p.alive() {
			t.Errorf("left running: %s (%d)", p.command, p.pid)
		}
	}
	nothingLeft(t, data)

	again := startStack(t, data)
	if again.SandboxID != r.SandboxID {
		t.Errorf("the second run has sandbox %s, want %s", again.SandboxID, r.SandboxID)
	}
	if got := again.sh(t, again.SandboxID, "cat /workspace/kept"); got != "kept\n" {
		t.Errorf("got %q after a second start, want the file", got)
	}
}

// shortTempDir is like t.TempDir, but short enough for the sockets in it.
func shortTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cubepod")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// nothingLeft checks that no mount and no socket of the stack is there.
func nothingLeft(t *testing.T, data string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), data) {
		t.Error("a mount is left")
	}
	filepath.WalkDir(data, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type()&os.ModeSocket != 0 {
			t.Errorf("a socket is left: %s", path)
		}
		return nil
	})
}

func (r *running) testCommandsAndFiles(t *testing.T) {
	if got := r.sh(t, r.SandboxID, "echo hi; id -u; pwd"); got != "hi\n1000\n/workspace\n" {
		t.Errorf("got %q", got)
	}
	content := strings.Repeat("cubepod é 汉 \x00\n", 5000)
	req, _ := http.NewRequest("PUT", r.APIURL+"/sandboxes/"+r.SandboxID+"/files?path=/workspace/dir/f", strings.NewReader(content))
	req.Header.Set("X-API-Key", r.APIKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Fatalf("put: %s", resp.Status)
	}
	if got := r.sh(t, r.SandboxID, "wc -c < /workspace/dir/f; stat -c %u:%g /workspace/dir /workspace/dir/f"); got != fmt.Sprintf("%d\n1000:1000\n1000:1000\n", len(content)) {
		t.Errorf("got %q", got)
	}
	req, _ = http.NewRequest("GET", r.APIURL+"/sandboxes/"+r.SandboxID+"/files?path=/workspace/dir/f", nil)
	req.Header.Set("X-API-Key", r.APIKey)
	resp, err = http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || string(got) != content {
		t.Errorf("got %d bytes back, %v, want %d", len(got), err, len(content))
	}
}

func (r *running) testPanels(t *testing.T) {
	page := sandboxBrowser(t, r.CDPURL)
	if err := chromedp.Do(page, chromedp.Navigate(typingPage)); err != nil {
		t.Fatal(err)
	}

	const allow = `allow="clipboard-read *; clipboard-write *; fullscreen *" style="border:0;display:block"`
	outer := httptest.NewServer(outerPage(fmt.Sprintf(
		`<body style="margin:0;background:#fff"><iframe src="%s" width=1000 height=640 %s></iframe><iframe src="%s" width=1000 height=300 %s></iframe>`,
		r.DesktopURL, allow, r.TerminalURL, allow)))
	defer outer.Close()
	user := userBrowser(t, 1000, 940)
	if err := chromedp.Do(user, chromedp.Navigate(outer.URL)); err != nil {
		t.Fatal(err)
	}

	// The picture: the page's blue, in the middle of the viewer.
	middle := image.Rect(250, 250, 750, 600)
	testutil.Eventually(t, "the viewer shows the sandbox's page", func() bool {
		return share(screenshot(t, user), middle, red, green, blue) > 0.9
	})

	// Typing: a click into the viewer, then keys, arrive in the sandbox's page.
	// A click that has not arrived yet is not repeated: two would select text.
	const typed = "Hello W0rld @#"
	if err := chromedp.Do(user, chromedp.MouseClickXY(150, 115)); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "a click in the viewer reaches the page", func() bool {
		clicks, err := chromedp.Run(page, chromedp.Evaluate[int](`clicks`))
		return err == nil && clicks == 1 && focused(user) == 0
	})
	if err := chromedp.Do(user, chromedp.KeyEvent(typed)); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the text typed into the viewer is in the sandbox's page", func() bool {
		v, err := chromedp.Run(page, chromedp.Evaluate[string](`document.querySelector("#a").value`))
		return err == nil && v == typed
	})

	// The terminal: what is typed runs, and a second viewer reads its output.
	screen := joinTerminal(t, r.TerminalURL)
	if err := chromedp.Do(user, chromedp.MouseClickXY(300, 760)); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the terminal has the focus", func() bool { return focused(user) == 1 })
	if err := chromedp.Do(user, chromedp.KeyEvent("echo $((6*7))é汉 | tee /workspace/t42\r")); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the terminal runs what is typed", func() bool {
		return r.sh(t, r.SandboxID, "cat /workspace/t42 2>&1") == "42é汉\n"
	})
	if got := r.sh(t, r.SandboxID, "stat -c %u /workspace/t42"); got != "1000\n" {
		t.Errorf("the terminal's shell writes as uid %q", got)
	}
	screen.waitFor(t, "42é汉\r\n") // the echo of the command has no 42

	// Resize: the shell knows the size that the terminal's frame has.
	if err := chromedp.Do(user, chromedp.KeyEvent("stty size > /workspace/size\r")); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the shell has the frame's size", func() bool {
		var rows, cols int
		fmt.Sscan(r.sh(t, r.SandboxID, "cat /workspace/size 2>/dev/null"), &rows, &cols)
		return rows > 10 && rows < 40 && cols > 90
	})
}

// terminalScreen is a viewer of a terminal that collects what it prints.
type terminalScreen struct {
	conn *websocket.Conn
	text strings.Builder
}

// joinTerminal opens a terminal panel's WebSocket as any program may.
func joinTerminal(t *testing.T, url string) *terminalScreen {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), strings.Replace(url, "http", "ws", 1)+"ws", &websocket.DialOptions{Subprotocols: []string{"tty"}})
	if err != nil {
		t.Fatalf("join the terminal: %s", redact(err.Error()))
	}
	t.Cleanup(func() { conn.CloseNow() })
	conn.SetReadLimit(1 << 20)
	if err := conn.Write(t.Context(), websocket.MessageBinary, []byte(`{"AuthToken":"","columns":120,"rows":20}`)); err != nil {
		t.Fatal(err)
	}
	return &terminalScreen{conn: conn}
}

func (s *terminalScreen) waitFor(t *testing.T, want string) {
	t.Helper()
	deadline := time.AfterFunc(testutil.Patience, func() { s.conn.CloseNow() })
	defer deadline.Stop()
	for !strings.Contains(s.text.String(), want) {
		_, msg, err := s.conn.Read(t.Context())
		if err != nil {
			t.Fatalf("the terminal never printed %q, but %q: %v", want, s.text.String(), err)
		}
		if len(msg) > 0 && msg[0] == '0' {
			s.text.Write(msg[1:])
		}
	}
}

func (r *running) testHTTPS(t *testing.T) {
	// Caddy's own CA is in no trust store: that is the point of not asking for it.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	console, panels := r.httpsOrigins(t)
	for _, url := range []string{console + "/health", panels + strings.TrimPrefix(r.DesktopURL, r.EdgeURL)} {
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(redact(err.Error()))
		}
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("%s: got %s", redact(url), resp.Status)
		}
	}
}

// httpsOrigins are those that the stack printed: the console's and the panels'.
func (r *running) httpsOrigins(t *testing.T) (console, panels string) {
	t.Helper()
	for line := range strings.Lines(r.out.String()) {
		if f := strings.Fields(line); len(f) > 3 && f[0] == "HTTPS" {
			return f[1], f[3]
		}
	}
	t.Fatalf("no HTTPS address in\n%s", r.out)
	return "", ""
}

func (r *running) testRefusedTokens(t *testing.T) {
	token := strings.Split(strings.TrimPrefix(r.DesktopURL, r.EdgeURL+"/panel/"), "/")[0]
	parts := strings.Split(token, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + parts[1] + "."
	for name, bad := range map[string]string{
		"tampered signature": token[:len(token)-6] + "AAAAAA",
		"tampered claims":    parts[0] + "." + parts[1] + "x." + parts[2],
		"alg none":           none,
		"garbage":            "no-token-at-all",
	} {
		code, body := get(t, r.EdgeURL+"/panel/"+bad+"/")
		if code != 403 {
			t.Errorf("%s: got %d, want 403", name, code)
		}
		if strings.Contains(body, bad) {
			t.Errorf("%s: the error page quotes the token", name)
		}
		if _, resp, err := websocket.Dial(t.Context(), strings.Replace(r.EdgeURL, "http", "ws", 1)+"/panel/"+bad+"/websockify", nil); err == nil || resp == nil || resp.StatusCode != 403 {
			t.Errorf("%s on an upgrade: got %v, want 403", name, err)
		}
	}

	var panel struct {
		URL string `json:"url"`
	}
	if code := r.call(t, "POST", "/sandboxes/"+r.SandboxID+"/panels", map[string]any{"port": 7681, "expiresInSeconds": 1}, &panel); code != 201 {
		t.Fatalf("panels: %d", code)
	}
	for _, url := range []string{r.EdgeURL, r.APIURL, panel.URL} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "rebound.example"
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(redact(err.Error()))
		}
		resp.Body.Close()
		if resp.StatusCode != 421 {
			t.Errorf("%s by a name that is not ours: got %s, want 421", redact(url), resp.Status)
		}
	}
	if code := status(t, panel.URL); code != 200 {
		t.Errorf("fresh token: got %d, want 200", code)
	}
	testutil.Eventually(t, "the token expires, five seconds of leeway later", func() bool { return status(t, panel.URL) == 403 })
}

func (r *running) testNoDesktop(t *testing.T) {
	var made struct {
		SandboxID string `json:"sandboxID"`
	}
	r.call(t, "POST", "/sandboxes", map[string]any{"templateID": "base", "timeout": 60}, &made)
	var e struct {
		Error string `json:"error"`
	}
	if code := r.call(t, "POST", "/sandboxes/"+made.SandboxID+"/desktop/start", nil, &e); code != 422 || e.Error != "desktop_not_installed" {
		t.Errorf("got %d %q, want 422 desktop_not_installed", code, e.Error)
	}
	if code := r.call(t, "DELETE", "/sandboxes/"+made.SandboxID, nil, nil); code != 204 {
		t.Errorf("delete: %d", code)
	}
	if code := r.call(t, "GET", "/sandboxes/"+made.SandboxID, nil, nil); code != 404 && code != 410 {
		t.Errorf("a deleted sandbox: %d", code)
	}
}

func (r *running) testPauseResume(t *testing.T) {
	r.sh(t, r.SandboxID, "echo file > /workspace/p; echo home > /home/cubeplex/p; echo gone > /tmp/p")
	before := len(descendants(t, r.cmd.Process.Pid))
	if code := r.call(t, "POST", "/sandboxes/"+r.SandboxID+"/pause", nil, nil); code != 204 {
		t.Fatalf("pause: %d", code)
	}
	if after := len(descendants(t, r.cmd.Process.Pid)); after >= before {
		t.Errorf("%d processes before the pause, %d after", before, after)
	}
	if code := r.call(t, "POST", "/sandboxes/"+r.SandboxID+"/pause", nil, nil); code != 409 {
		t.Errorf("pause again: %d, want 409", code)
	}
	// A browser's sub-request wakes nothing.
	req, _ := http.NewRequest("GET", r.DesktopURL, nil)
	req.Header.Set("Sec-Fetch-Mode", "cors")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 503 {
		t.Errorf("a sub-request to a paused sandbox: %s, want 503", resp.Status)
	}
	var rec struct {
		State string `json:"state"`
	}
	r.call(t, "GET", "/sandboxes/"+r.SandboxID, nil, &rec)
	if rec.State != "paused" {
		t.Errorf("got state %q, want paused", rec.State)
	}
	// A tool's request does: the old URL works again, desktop and all.
	testutil.Eventually(t, "the old desktop URL wakes the sandbox", func() bool { return status(t, r.DesktopURL) == 200 })
	if got := r.sh(t, r.SandboxID, "cat /workspace/p /home/cubeplex/p; ls /tmp/p 2>/dev/null"); got != "file\nhome\n" {
		t.Errorf("got %q", got)
	}
	sandboxBrowser(t, r.CDPURL)
}

// shownPage is what the sandbox's browser shows in the console's picture.
const shownPage = `data:text/html,<title>In a sandbox</title><body style="margin:0;height:100vh;display:grid;place-content:center;background:%232266cc;color:white;font:32px system-ui;text-align:center">` +
	`<h1>A browser in a sandbox</h1><p>click, type, or hand it to an agent over CDP`

// testConsole opens the console as the link of `make run` does, and the desktop
// in it. With CUBEPOD_SCREENSHOTS set it leaves a picture in that directory.
func (r *running) testConsole(t *testing.T) {
	if err := chromedp.Do(sandboxBrowser(t, r.CDPURL), chromedp.Navigate(shownPage)); err != nil {
		t.Fatal(err)
	}
	user := userBrowser(t, 1440, 860)
	said := consoleErrors(t, user)
	if err := chromedp.Do(user, chromedp.Navigate(r.ConsoleURL+"#key="+r.APIKey)); err != nil {
		t.Fatal(err)
	}
	click := func(text string) {
		t.Helper()
		testutil.Eventually(t, "the console shows "+text, func() bool {
			found, err := chromedp.Run(user, chromedp.Evaluate[bool](fmt.Sprintf(`(() => {
				const hit = [...document.querySelectorAll("button, a")].find(e => e.innerText.includes(%q) && e.offsetParent);
				hit?.click();
				return !!hit;
			})()`, text)))
			return err == nil && found
		})
	}
	click(r.SandboxID)
	loc, err := chromedp.Run(user, chromedp.Location())
	if err != nil || strings.Contains(loc, r.APIKey) {
		t.Errorf("the key stays in the address: %v", err)
	}
	click("Open desktop")
	left := image.Rect(50, 400, 700, 450)
	var shot image.Image
	testutil.Eventually(t, "the console shows the sandbox's page", func() bool {
		shot = screenshot(t, user)
		return share(shot, left, red, green, blue) > 0.6
	})
	if got := said(); len(got) > 0 {
		t.Errorf("the console's scripts complain: %s", strings.Join(got, "\n"))
	}
	if dir := os.Getenv("CUBEPOD_SCREENSHOTS"); dir != "" {
		savePNG(t, filepath.Join(dir, "console.png"), shot)
	}
}

func savePNG(t *testing.T, path string, img image.Image) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(png.Encode(f, img), f.Close()); err != nil {
		t.Fatal(err)
	}
}
