package cdpfront_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"
	"github.com/coder/websocket"

	"github.com/cubeplexai/cubepod/internal/cdpfront"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// startChromium runs a browser without a display on the given port, or on a
// free one when that is "0", until stop is called or the test ends. It gives
// its DevTools address.
func startChromium(t *testing.T, port string) (addr string, stop func()) {
	t.Helper()
	path := testutil.NeedProgram(t, "chromium")
	profile := t.TempDir()
	cmd := exec.CommandContext(t.Context(), path,
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
		"--disable-component-update", "--no-first-run", "--password-store=basic",
		"--user-data-dir="+profile, "--remote-debugging-port="+port, "about:blank")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		cmd.Process.Kill()
		cmd.Wait()
		// Its children write for a moment longer.
		testutil.Eventually(t, "the profile can be removed", func() bool { return os.RemoveAll(profile) == nil })
	})
	t.Cleanup(stop)
	if port == "0" {
		testutil.Eventually(t, "Chromium names its port", func() bool {
			data, err := os.ReadFile(filepath.Join(profile, "DevToolsActivePort"))
			var ok bool
			port, _, ok = strings.Cut(string(data), "\n")
			return err == nil && ok
		})
	}
	testutil.Eventually(t, "Chromium answers", func() bool {
		resp, err := http.Get("http://127.0.0.1:" + port + "/json/version")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return true
	})
	return "127.0.0.1:" + port, stop
}

// A real client finds and drives a real browser through the front, by the
// address it gets there.
func TestChromium(t *testing.T) {
	browser, _ := startChromium(t, "0")
	front := newFront(t, cdpfront.New(browser, nil))

	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	alloc, cancelAlloc := remote.NewAllocator(ctx, "http://"+front.Listener.Addr().String())
	defer cancelAlloc()
	tab, cancelTab := chromedp.NewContext(alloc)
	defer cancelTab()
	if err := chromedp.Do(tab, chromedp.Navigate("data:text/html,<title>through the front</title>")); err != nil {
		t.Fatal(err)
	}
	got, err := chromedp.Run(tab, chromedp.Title())
	if err != nil {
		t.Fatal(err)
	}
	if want := "through the front"; got != want {
		t.Errorf("title %q, want %q", got, want)
	}

	req, _ := http.NewRequestWithContext(ctx, "PUT", front.URL+"/json/new?about:blank", nil)
	resp, err := front.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if want := `"ws://` + front.Listener.Addr().String() + `/devtools/page/`; !strings.Contains(string(body), want) {
		t.Errorf("PUT /json/new: %s does not contain %s", body, want)
	}
}

// The root is a WebSocket address that stays good when the browser does not.
func TestRootOutlivesTheBrowser(t *testing.T) {
	browser, stop := startChromium(t, "0")
	_, port, _ := strings.Cut(browser, ":")
	front := newFront(t, cdpfront.New(browser, nil))
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	for range 2 {
		for _, path := range []string{"", "/", "/devtools/browser", "/devtools/browser/"} {
			c, _, err := websocket.Dial(ctx, front.URL+path, nil)
			if err != nil {
				t.Fatalf("%q: %v", path, err)
			}
			defer c.CloseNow()
			if err := c.Write(ctx, websocket.MessageText, []byte(`{"id":7,"method":"Browser.getVersion"}`)); err != nil {
				t.Fatal(err)
			}
			if _, answer, err := c.Read(ctx); err != nil || !strings.HasPrefix(string(answer), `{"id":7,"result":{`) {
				t.Errorf("%q: %s, %v", path, answer, err)
			}
		}
		stop()
		_, stop = startChromium(t, port)
	}
}
