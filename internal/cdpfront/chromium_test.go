package cdpfront_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"

	"github.com/cubeplexai/cubepod/internal/cdpfront"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// startChromium runs a browser without a display and gives its DevTools
// address.
func startChromium(t *testing.T) string {
	t.Helper()
	path := testutil.NeedProgram(t, "chromium")
	profile := t.TempDir()
	cmd := exec.CommandContext(t.Context(), path,
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
		"--disable-component-update", "--no-first-run", "--password-store=basic",
		"--user-data-dir="+profile, "--remote-debugging-port=0", "about:blank")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		// Its children write for a moment longer.
		testutil.Eventually(t, "the profile can be removed", func() bool { return os.RemoveAll(profile) == nil })
	})
	var port string
	testutil.Eventually(t, "Chromium names its port", func() bool {
		data, err := os.ReadFile(filepath.Join(profile, "DevToolsActivePort"))
		var ok bool
		port, _, ok = strings.Cut(string(data), "\n")
		return err == nil && ok
	})
	return "127.0.0.1:" + port
}

// A real client finds and drives a real browser through the front, by the
// address it gets there.
func TestChromium(t *testing.T) {
	front := newFront(t, cdpfront.New(startChromium(t), nil))

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
