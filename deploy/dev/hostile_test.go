package main_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

// consoleErrors collects the errors that a page's scripts report.
func consoleErrors(t *testing.T, page context.Context) func() []string {
	t.Helper()
	var mu sync.Mutex // guards the field below
	var said []string
	messages := chromedp.Console(page)
	go func() { // ends with page's context
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.Type == chromedp.ConsoleException || m.Type == "error" {
				mu.Lock()
				said = append(said, m.Text)
				mu.Unlock()
			}
		}
	}()
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), said...)
	}
}

// hostileScript tries what a page in the sandbox's browser can try against the
// guest's own listeners. Every entry says what it got; "refused" is the only
// good answer.
const hostileScript = `(async () => {
	const out = {};
	const get = async (name, url, opts) => {
		try {
			const r = await fetch(url, opts);
			out[name] = r.type == "opaque" ? "opaque" : r.status == 403 ? "refused" : "status " + r.status;
		} catch (e) { out[name] = "refused"; }
	};
	const ws = (name, url, protocols) => new Promise(done => {
		const s = new WebSocket(url, protocols);
		s.onopen = () => { out[name] = "open"; s.close(); done(); };
		s.onerror = s.onclose = () => { out[name] ??= "refused"; done(); };
	});
	const image = (name, url) => new Promise(done => {
		const i = new Image();
		i.onload = () => { out[name] = "loaded"; done(); };
		i.onerror = () => { out[name] = "refused"; done(); };
		i.src = url;
	});
	for (const host of ["127.0.0.1", "localhost", "x.localhost"]) {
		for (const port of [8080, 7681, 9222, 49983]) await get("fetch " + host + ":" + port, "http://" + host + ":" + port + "/json/version");
		await get("new tab " + host, "http://" + host + ":9222/json/new?about:blank", {method: "PUT"});
		await get("run " + host, "http://" + host + ":49983/v1/commands/run", {method: "POST", body: '{"command":"id"}'});
		await ws("viewer " + host, "ws://" + host + ":8080/websockify");
		await ws("terminal " + host, "ws://" + host + ":7681/ws", ["tty"]);
		await ws("cdp " + host, "ws://" + host + ":9222/devtools/browser/x");
	}
	await image("image", "http://127.0.0.1:8080/favicon.ico");
	return JSON.stringify(out);
})()`

// testHostilePage opens a strange page in the sandbox's own browser. The page
// comes from a server on the guest's loopback, so that no rule of the browser
// about private networks stands before ours.
func (r *running) testHostilePage(t *testing.T) {
	r.call(t, "POST", "/sandboxes/"+r.SandboxID+"/commands/run", map[string]any{
		"background": true,
		"command":    `perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => 3999, Listen => 5, ReuseAddr => 1) or die; while ($c = $s->accept) { <$c>; print $c "HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n<title>hostile</title>"; close $c }'`,
	}, nil)
	page := sandboxBrowser(t, r.CDPURL)
	testutil.Eventually(t, "the hostile page is open", func() bool {
		if chromedp.Do(page, chromedp.Navigate("http://127.0.0.1:3999/")) != nil {
			return false
		}
		title, err := chromedp.Run(page, chromedp.Title())
		return err == nil && title == "hostile"
	})
	doc, err := chromedp.Run(page, chromedp.Evaluate[string](hostileScript, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal([]byte(doc), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 28 {
		t.Errorf("%d attempts, want 28: %v", len(got), got)
	}
	for name, answer := range got {
		if answer != "refused" {
			t.Errorf("%s: %s", name, answer)
		}
	}
	// The same requests without a page's headers do get an answer, so it was
	// the guard that refused.
	if out := r.sh(t, r.SandboxID, `for p in 8080 7681 9222; do timeout 5 bash -c "exec 3<>/dev/tcp/127.0.0.1/$p; printf 'GET /json/version HTTP/1.0\r\nHost: 127.0.0.1:$p\r\n\r\n' >&3; head -c 12 <&3"; echo; done`); strings.Count(out, "HTTP/1.") != 3 {
		t.Errorf("the guest's own tools get no answer: %q", out)
	}
	if err := chromedp.Do(page, chromedp.Navigate("about:blank")); err != nil {
		t.Fatal(err)
	}
}
