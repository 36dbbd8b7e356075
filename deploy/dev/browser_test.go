package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"image"
	"image/png"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

// userBrowser starts the browser of a person outside of any sandbox.
func userBrowser(t *testing.T, width, height int) context.Context {
	t.Helper()
	alloc, cancel := chromedp.NewExecAllocator(t.Context(),
		chromedp.ExecPath(testutil.NeedProgram(t, "chromium")),
		chromedp.NoSandbox, chromedp.Headless, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("ignore-certificate-errors", true),
		chromedp.WindowSize(width, height),
	)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(int64(width), int64(height))); err != nil {
		t.Fatalf("start a browser: %v", err)
	}
	// The tab that the browser opened itself would keep the keyboard.
	if _, err := chromedp.Call(ctx, page.BringToFront, cdp.Empty{}); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// sandboxBrowser connects to the browser in a sandbox with nothing but its CDP
// URL, and gives the page that it shows.
func sandboxBrowser(t *testing.T, cdpURL string) context.Context {
	t.Helper()
	var version struct {
		WebSocketDebuggerURL string `json:"webSocketDebuggerUrl"`
	}
	_, body := get(t, cdpURL+"json/version")
	if err := json.Unmarshal([]byte(body), &version); err != nil {
		t.Fatalf("%s: %s", err, body)
	}
	if want := strings.Replace(cdpURL, "http", "ws", 1) + "devtools/browser/"; !strings.HasPrefix(version.WebSocketDebuggerURL, want) {
		t.Fatalf("the debugger's address %q does not lead through the panel", redact(version.WebSocketDebuggerURL))
	}
	alloc, cancel := remote.NewAllocator(t.Context(), version.WebSocketDebuggerURL, remote.NoModifyURL)
	t.Cleanup(cancel)
	browser, cancel := chromedp.NewContext(alloc)
	t.Cleanup(cancel)
	infos, err := chromedp.Targets(browser)
	if err != nil {
		t.Fatalf("connect over CDP: %v", err)
	}
	for _, info := range infos {
		if info.Type == "page" {
			ctx, cancel := chromedp.NewContext(browser, chromedp.WithTargetID(info.TargetID))
			t.Cleanup(cancel)
			if err := chromedp.Do(ctx); err != nil {
				t.Fatal(err)
			}
			return ctx
		}
	}
	t.Fatal("the sandbox's browser shows no page")
	return nil
}

// focused is the number of the page's frame that has the focus, or -1. The
// browser moves it a moment after a click.
func focused(page context.Context) int {
	n, err := chromedp.Run(page, chromedp.Evaluate[int](`[...document.querySelectorAll("iframe")].indexOf(document.activeElement)`))
	if err != nil {
		return -1
	}
	return n
}

func screenshot(t *testing.T, page context.Context) image.Image {
	t.Helper()
	data, err := chromedp.Run(page, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// share is the part of r whose pixels are within 8 of colour c in each channel.
func share(img image.Image, r image.Rectangle, red, green, blue int) float64 {
	near := func(v uint32, want int) bool { return int(v>>8)-want <= 8 && want-int(v>>8) <= 8 }
	hits, all := 0, 0
	for y := r.Min.Y; y < r.Max.Y; y += 3 {
		for x := r.Min.X; x < r.Max.X; x += 3 {
			cr, cg, cb, _ := img.At(x, y).RGBA()
			if near(cr, red) && near(cg, green) && near(cb, blue) {
				hits++
			}
			all++
		}
	}
	return float64(hits) / float64(all)
}

// outerPage serves a page of another origin that embeds panels.
func outerPage(html string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		io.WriteString(w, html)
	})
}

// redact hides tokens in what a failing test prints.
func redact(s string) string {
	before, after, ok := strings.Cut(s, "/panel/")
	if !ok {
		return s
	}
	_, rest, _ := strings.Cut(after, "/")
	return before + "/panel/…/" + rest
}
