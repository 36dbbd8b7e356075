package web_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/cubeplexai/cubepod/desktopctl/viewer"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// A viewer in an inert frame shows the desktop, and leaves keys and clicks to
// the page around it.
func TestViewerPageInInertFrame(t *testing.T) {
	server := newVNCServer(t)
	v := viewer.New(viewer.Options{WebDir: filepath.Join(pages(t), "viewer"), RFB: server.dial})
	t.Cleanup(func() { v.Close() })
	e := newEdge(t, 8080, v)
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!doctype html><input id="name" style="position:fixed;top:0;left:0">
			<iframe inert style="position:fixed;top:40px;left:0;width:640px;height:480px" src="%s"></iframe>`, e.URL+prefix)
	}))
	t.Cleanup(host.Close)
	tb := newBrowser(t, chromedp.WindowSize(960, 600))
	tb.do(chromedp.Navigate(host.URL), chromedp.Focus("#name"))
	testutil.Eventually(t, "the viewer connects", func() bool { return server.viewers.Load() > 0 })
	tb.do(chromedp.KeyEvent("ab"), chromedp.MouseClickXY(100, 240), chromedp.KeyEvent("c"))
	tb.until(`document.getElementById("name").value.slice(0, 2)`, "ab")
	if tag := tb.text(`document.activeElement.tagName`); tag == "IFRAME" {
		t.Error("the frame took the focus")
	}
	// What comes after all that arrives, so all that came through is there.
	tb.text(`document.querySelector("iframe").inert = false`)
	testutil.Eventually(t, "a click goes to the frame", func() bool {
		tb.do(chromedp.MouseClickXY(500, 240))
		return tb.text(`document.activeElement.tagName`) == "IFRAME" && len(server.clicked()) > 0
	})
	tb.do(chromedp.KeyEvent("z"))
	expectTyped(t, server, "z")
	for _, x := range server.clicked() {
		if x < 300 {
			t.Errorf("a click at %d arrived while the frame was inert", x)
		}
	}
}

// On a touch screen the keyboard comes by a button, and goes by it.
func TestViewerPageOnGlass(t *testing.T) {
	server := newVNCServer(t)
	v := viewer.New(viewer.Options{WebDir: filepath.Join(pages(t), "viewer"), RFB: server.dial})
	t.Cleanup(func() { v.Close() })
	tb := newEdge(t, 8080, v).browse(t, "")
	const (
		hidden   = `document.getElementById("keys").hidden`
		keyboard = `[document.activeElement.id, document.getElementById("field").inputMode, document.getElementById("keys").ariaPressed].join()`
	)
	tb.until(`document.querySelector("canvas")?.width`, "640")
	tb.until(hidden, "true")
	tb.do(chromedp.EmulateViewport(400, 700, chromedp.EmulateMobile, chromedp.EmulateTouch))
	tb.until(hidden, "false")
	tb.tap(200, 350)
	tb.until(keyboard, "field,none,false")
	tb.picture("viewer-glass")
	tb.tap(366, 666)
	tb.until(keyboard, "field,text,true")
	tb.picture("viewer-glass-keyboard")
	tb.insert("hé")
	expectTyped(t, server, "hé")
	tb.tap(366, 666)
	tb.until(keyboard, "field,none,false")
	if len(server.clicked()) == 0 {
		t.Error("the tap on the picture did not arrive")
	}
}

// tap touches the page with one finger.
func (b *tab) tap(x, y float64) {
	b.t.Helper()
	for _, event := range []input.DispatchTouchEventParams{
		{Type: input.DispatchTouchEventTypeTouchStart, TouchPoints: []*input.TouchPoint{{X: x, Y: y}}},
		{Type: input.DispatchTouchEventTypeTouchEnd, TouchPoints: []*input.TouchPoint{}},
	} {
		if _, err := chromedp.Call(b.ctx, input.DispatchTouchEvent, event); err != nil {
			b.t.Fatal(err)
		}
	}
}
