package main_test

import (
	"context"
	"fmt"
	"image"
	"io"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/coder/websocket"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

// keepCloses has a page keep how its sockets ended, and how many it opened.
const keepCloses = `window.opened = 0; window.closes = []; window.WebSocket = new Proxy(WebSocket, { construct(target, args) {
	const socket = new target(...args);
	opened++;
	socket.addEventListener("close", e => closes.push(e.code + " " + e.reason));
	return socket;
} })`

// panel makes a viewer's URL.
func (r *running) panel(t *testing.T, mode string, seconds int) string {
	t.Helper()
	var made struct {
		URL string `json:"url"`
	}
	if code := r.call(t, "POST", "/sandboxes/"+r.SandboxID+"/panels", map[string]any{"port": 8080, "mode": mode, "expiresInSeconds": seconds}, &made); code != 201 {
		t.Fatalf("panels: %d", code)
	}
	return made.URL
}

// watch opens a panel in a person's browser and waits for its picture.
func (r *running) watch(t *testing.T, url string) context.Context {
	t.Helper()
	user := userBrowser(t, 1000, 640)
	if _, err := chromedp.Call(user, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: keepCloses}); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(user, chromedp.Navigate(url)); err != nil {
		t.Fatal(redact(err.Error()))
	}
	seesColour(t, user, red, green, blue)
	return user
}

// seesColour waits for the middle of a viewer to have a colour.
func seesColour(t *testing.T, user context.Context, red, green, blue int) {
	t.Helper()
	testutil.Eventually(t, "the viewer shows the sandbox's page", func() bool {
		return share(screenshot(t, user), image.Rect(250, 250, 750, 600), red, green, blue) > 0.9
	})
}

// says waits for a page's expression.
func says(t *testing.T, page context.Context, expression, want string) {
	t.Helper()
	var got string
	defer func() {
		if t.Failed() {
			t.Logf("%s is %q, want %q", expression, got, want)
		}
	}()
	testutil.Eventually(t, expression, func() bool {
		var err error
		got, err = chromedp.Run(page, chromedp.Evaluate[string]("String("+expression+")"))
		return err == nil && got == want
	})
}

const barText = `(b => b.hidden ? "" : b.textContent)(document.getElementById("bar"))`

// TestWatching looks on through a view-only panel, as a person does and as
// somebody who wants more, and sees panels end: by time, by revocation, and by
// a pause.
func TestWatching(t *testing.T) {
	needStack(t)
	r := startStack(t, shortTempDir(t))
	inside := sandboxBrowser(t, r.CDPURL)
	if err := chromedp.Do(inside, chromedp.Navigate(typingPage)); err != nil {
		t.Fatal(err)
	}
	const state = `[clicks, document.querySelector("textarea").value, screen.width, screen.height, outerWidth].join()`
	before, err := chromedp.Run(inside, chromedp.Evaluate[string](state))
	if err != nil {
		t.Fatal(err)
	}

	url := r.panel(t, "view", 600)
	user := r.watch(t, url)
	says(t, user, `document.body.dataset.mode`, "view")
	says(t, user, barText, "")
	if err := chromedp.Do(user, chromedp.MouseClickXY(150, 115), chromedp.KeyEvent("typed"), chromedp.EmulateViewport(500, 400), chromedp.EmulateViewport(1000, 640)); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(user, input.InsertText, input.InsertTextParams{Text: "inserted"}); err != nil {
		t.Fatal(err)
	}
	says(t, user, barText, "View only")
	r.intrude(t, url)
	// What comes after all that is seen, so all that came through is there.
	if _, err := chromedp.Run(inside, chromedp.Evaluate[string](`document.body.style.background = "#cc6622"`)); err != nil {
		t.Fatal(err)
	}
	seesColour(t, user, 0xcc, 0x66, 0x22)
	says(t, inside, state, before)

	if _, err := chromedp.Run(inside, chromedp.Evaluate[string](fmt.Sprintf(`document.body.style.background = "rgb(%d,%d,%d)"`, red, green, blue))); err != nil {
		t.Fatal(err)
	}
	short := r.watch(t, r.panel(t, "view", 10)) // and five seconds of leeway
	says(t, short, `closes.join()`, "1008 expired")
	says(t, short, barText, "This link has expired")

	if code := r.call(t, "POST", "/sandboxes/"+r.SandboxID+"/panels/revoke", nil, nil); code/100 != 2 {
		t.Fatalf("revoke: %d", code)
	}
	says(t, user, `closes.join()`, "1008 revoked")
	says(t, user, barText, "This link was revoked")
	var tries []string
	for _, ended := range []context.Context{short, user} {
		n, err := chromedp.Run(ended, chromedp.Evaluate[string](`String(opened)`))
		if err != nil {
			t.Fatal(err)
		}
		tries = append(tries, n)
	}

	inControl := r.watch(t, r.panel(t, "control", 600))
	says(t, inControl, `window.seen = "it is the page that saw the picture"`, "it is the page that saw the picture")
	if code := r.call(t, "POST", "/sandboxes/"+r.SandboxID+"/pause", nil, nil); code != 204 {
		t.Fatalf("pause: %d", code)
	}
	says(t, inControl, barText, "Paused, click to resume")
	says(t, inControl, `window.seen`, "it is the page that saw the picture")
	if err := chromedp.Do(inControl, chromedp.MouseClickXY(500, 320)); err != nil {
		t.Fatal(err)
	}
	says(t, inControl, `document.querySelector("canvas")?.width > 0 && `+barText, "")

	// What has said that it is over has not tried again since.
	for i, ended := range []context.Context{short, user} {
		says(t, ended, `opened`, tries[i])
	}
}

// intrude says on a panel's socket what noVNC does not in a page for watching.
func (r *running) intrude(t *testing.T, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	c, _, err := websocket.Dial(ctx, strings.Replace(url, "http", "ws", 1)+"websockify", nil)
	if err != nil {
		t.Fatal(redact(err.Error()))
	}
	defer c.CloseNow()
	c.SetReadLimit(-1)
	rfb := websocket.NetConn(ctx, c, websocket.MessageBinary)
	for _, step := range []struct {
		read int
		say  string
	}{
		{12, "RFB 003.008\n"},
		{2, "\x01"}, // one way to log in: none
		{4, "\x00"}, // exclusively, which would throw the others out
		{24, "\x04\x01\x00\x00\x00\x00\x00A\x04\x00\x00\x00\x00\x00\x00A" +
			"\x05\x01\x00\x64\x00\x64\x05\x00\x00\x64\x00\x64" +
			"\x06\x00\x00\x00\x00\x00\x00\x01x" +
			"\xfb\x00\x02\x80\x01\xe0\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x80\x01\xe0\x00\x00\x00\x00" +
			"\x03\x00\x00\x00\x00\x00\x00\x10\x00\x10"},
		{4, ""}, // a picture, so all before it has been through
	} {
		if _, err := io.ReadFull(rfb, make([]byte, step.read)); err != nil {
			t.Fatalf("read %d bytes: %v", step.read, err)
		}
		if _, err := io.WriteString(rfb, step.say); err != nil {
			t.Fatal(err)
		}
	}
}
