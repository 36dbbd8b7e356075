package web_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
	"go.uber.org/goleak"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/loopback"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

var screenshots = flag.String("screenshots", "", "keep a picture of each page in this folder")

// output is where the pages are built, once for all tests.
var output string

func TestMain(m *testing.M) {
	flag.Parse()
	var err error
	if output, err = os.MkdirTemp("", "cubepod-web-"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(output)
		os.Exit(code)
	}))
}

var build = sync.OnceValue(func() error {
	out, err := exec.Command("./build.sh", output).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build.sh: %w: %s", err, out)
	}
	return nil
})

// pages gives the folder of the built pages.
func pages(t *testing.T) string {
	t.Helper()
	for _, path := range []string{"/usr/share/novnc/core/rfb.js", "/usr/share/nodejs/xterm", "/usr/share/javascript/xterm"} {
		if _, err := os.Stat(path); err != nil {
			testutil.Skip(t, "needs the packages novnc, node-xterm and libjs-xterm")
		}
	}
	if err := build(); err != nil {
		t.Fatal(err)
	}
	return output
}

// prefix is a panel's path, with a token in it.
const prefix = "/panel/e30.eyJtb2RlIjoiY29udHJvbCJ9.c2ln/"

// edge does to a guest's answers what the real edge does: it strips the prefix
// and gives each page an opaque origin.
type edge struct {
	*httptest.Server
	refuse      atomic.Pointer[apierror.Error] // answered instead of the guest
	navigations atomic.Int32
	requests    atomic.Int32
}

func newEdge(t *testing.T, port int, guest http.Handler) *edge {
	t.Helper()
	inside := httptest.NewServer(loopback.Guard(port, guest))
	target, _ := url.Parse(inside.URL)
	e := new(edge)
	proxy := &httputil.ReverseProxy{
		Transport: &http.Transport{DisableKeepAlives: true},
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(target)
			pr.Out.Host = loopback.Host(port)
			if pr.In.Header.Get("Origin") != "" {
				pr.Out.Header.Set("Origin", loopback.Origin(port))
			}
			for name := range pr.Out.Header {
				if strings.HasPrefix(name, "Sec-Fetch-") {
					pr.Out.Header.Del(name)
				}
			}
		},
	}
	e.Server = httptest.NewServer(http.StripPrefix(strings.TrimSuffix(prefix, "/"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.requests.Add(1)
		if r.Header.Get("Sec-Fetch-Mode") == "navigate" {
			e.navigations.Add(1)
		}
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Content-Security-Policy", "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads allow-pointer-lock")
		if err := e.refuse.Load(); err != nil {
			apierror.Write(w, err)
			return
		}
		proxy.ServeHTTP(w, r)
	})))
	t.Cleanup(func() {
		e.Server.Close()
		inside.Close()
	})
	return e
}

// browse opens a page of e in a browser that ends with the test.
func (e *edge) browse(t *testing.T, path string) *tab {
	t.Helper()
	tb := newBrowser(t, chromedp.WindowSize(960, 600))
	tb.do(chromedp.Navigate(e.URL + prefix + path))
	return tb
}

// newBrowser starts a browser that ends with the test.
func newBrowser(t *testing.T, opts ...chromedp.ExecAllocatorOption) *tab {
	t.Helper()
	chromium := testutil.NeedProgram(t, "chromium")
	ctx, cancel := context.WithTimeout(t.Context(), 2*testutil.Patience)
	alloc, cancelAlloc := chromedp.NewExecAllocator(ctx, append(append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-component-update", true)), opts...)...)
	c, cancelTab := chromedp.NewContext(alloc)
	t.Cleanup(func() {
		cancelTab()
		cancelAlloc()
		cancel()
	})
	return &tab{t: t, ctx: c}
}

// tab is one page in a browser.
type tab struct {
	t   *testing.T
	ctx context.Context
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// text evaluates an expression that gives a string.
func (b *tab) text(expression string) string {
	b.t.Helper()
	s, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("String("+expression+")"))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return s
}

// until waits for expression to give want.
func (b *tab) until(expression, want string) {
	b.t.Helper()
	var got string
	defer func() {
		if b.t.Failed() {
			b.t.Logf("%s is %q, want %q", expression, got, want)
		}
	}()
	testutil.Eventually(b.t, expression+" is "+want, func() bool {
		got = b.text(expression)
		return got == want
	})
}

// paste pastes text into the field that has the focus, as the browser would.
func (b *tab) paste(text string) {
	b.t.Helper()
	data, err := json.Marshal(text)
	if err != nil {
		b.t.Fatal(err)
	}
	b.text(`(text => {
		const clipboardData = new DataTransfer();
		clipboardData.setData("text/plain", text);
		document.activeElement.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
	})(` + string(data) + `)`)
}

// picture keeps a screenshot if that was asked for.
func (b *tab) picture(name string) {
	b.t.Helper()
	if *screenshots == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*screenshots, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// shown is what the bar says, or nothing.
const shown = `(b => b.hidden ? "" : b.textContent)(document.getElementById("bar"))`

// refused are the answers after which a page gives up, or waits for a click.
var refused = []struct {
	err  *apierror.Error
	want string
}{
	{apierror.New(apierror.Unavailable, "sandbox_paused", "paused"), "Paused, click to resume"},
	{apierror.New(apierror.Forbidden, "token_expired", "expired"), "This link has expired"},
	{apierror.New(apierror.Forbidden, "token_revoked", "revoked"), "This link was revoked"},
	{apierror.New(apierror.Forbidden, "token_invalid", "invalid"), "This link is not valid"},
	{apierror.New(apierror.NotFound, "sandbox_not_found", "unknown"), "This sandbox is gone"},
	{apierror.New(apierror.Gone, "sandbox_deleted", "deleted"), "This sandbox is gone"},
	{apierror.New(apierror.Unavailable, "store_unavailable", "busy"), "Waiting for the sandbox…"},
	{apierror.New(apierror.BadGateway, "port_closed", "closed"), "Waiting for the sandbox…"},
}
