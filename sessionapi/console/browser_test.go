package console_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

// browser is shared by the tests of the package; each page has a browser
// context, and so storage, of its own.
var browser context.Context

func TestMain(m *testing.M) {
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	path := chromium()
	if path == "" {
		return m.Run()
	}
	profile, err := os.MkdirTemp("", "console-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(profile)
	alloc, stop := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath(path), chromedp.UserDataDir(profile), chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("hide-scrollbars", true),
		chromedp.WindowSize(1400, 900))
	defer stop()
	ctx, cancel := chromedp.NewContext(alloc)
	defer cancel()
	browser = ctx
	if err := chromedp.Do(browser); err != nil {
		panic(fmt.Sprintf("start chromium: %v", err))
	}
	defer func() { _ = chromedp.Cancel(browser) }() // waits for the process
	return m.Run()
}

func chromium() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// page is a tab. It remembers what the browser complained about.
type page struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex // guards the fields below
	errors []string
}

// newPage opens a tab with empty storage. When the test ends, a script error or
// a violation of the page's policy fails it.
func newPage(t *testing.T) *page {
	if browser == nil {
		testutil.Skip(t, "needs chromium")
	}
	p := &page{t: t}
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext(), chromedp.WithListener(p.listen))
	t.Cleanup(cancel)
	p.ctx = ctx
	// The tab lives as long as the context of its first use: that is not do's.
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	p.do(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		if _, err := cdp.Call(ctx, tab, log.Enable, cdp.Empty{}); err != nil {
			return err
		}
		_, err := cdp.Call(ctx, tab, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{
			Source: `document.addEventListener('securitypolicyviolation', (e) => console.error('policy: ' + e.violatedDirective + ' ' + e.blockedURI));`,
		})
		return err
	}))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the page at %s says:\n%s", p.eval("location.href"), p.eval("document.body.innerText"))
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, e := range p.errors {
			t.Errorf("the browser said: %s", e)
		}
	})
	return p
}

func (p *page) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += " " + e.ExceptionDetails.Exception.Description
		}
		p.errors = append(p.errors, text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			for _, arg := range e.Args {
				p.errors = append(p.errors, string(arg.Value)+arg.Description)
			}
		}
	case *log.EventEntryAdded:
		// A failed call is the API's answer, which tests ask for.
		if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
			p.errors = append(p.errors, e.Entry.Text)
		}
	}
}

func (p *page) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, testutil.Patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

// eval gives an expression's value as JavaScript's String does.
func (p *page) eval(expr string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, testutil.Patience)
	defer cancel()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[string]("String("+expr+")"))
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

// until waits for an expression to be true.
func (p *page) until(expr string) {
	p.t.Helper()
	testutil.Eventually(p.t, expr, func() bool { return p.eval(expr) == "true" })
}

// sees waits for text that a person can see below sel.
func (p *page) sees(sel, text string) {
	p.t.Helper()
	p.until(fmt.Sprintf(`[...document.querySelectorAll(%q)].some((n) => n.checkVisibility() && n.innerText.includes(%q))`, sel, text))
}

// click clicks the visible button or link with these words or this label.
func (p *page) click(words string) {
	p.t.Helper()
	p.until(fmt.Sprintf(`(() => {
		const top = document.querySelector('dialog[open]') ?? document;
		const hit = [...top.querySelectorAll('button, a')].find((n) => n.checkVisibility() && !n.disabled
			&& (n.innerText.trim() === %[1]q || n.ariaLabel === %[1]q));
		if (!hit) return false;
		hit.focus();
		hit.click();
		return true;
	})()`, words))
}

// write types into the field at sel, as a person at the keyboard does.
func (p *page) write(sel, keys string) {
	p.t.Helper()
	p.until(fmt.Sprintf(`(() => { const n = document.querySelector(%q); n?.focus(); return Boolean(n) && document.activeElement === n; })()`, sel))
	p.press(keys)
}

func (p *page) press(keys string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys))
}

func (p *page) open(url string) {
	p.t.Helper()
	p.do(chromedp.Navigate(url))
}

// enter opens the console with the key in the address, and then what path
// names.
func (p *page) enter(f *fakeAPI, path string) {
	p.t.Helper()
	p.open(f.URL + "/#key=" + key)
	p.until(`document.querySelector('h1')?.innerText === 'Sandboxes'`)
	if path != "" {
		p.eval(fmt.Sprintf("location.hash = %q", path))
	}
}

// wantNoSecretInAddress checks what the address bar shows.
func (p *page) wantNoSecretInAddress() {
	p.t.Helper()
	if got := p.eval("location.href"); strings.Contains(got, "key") || strings.Contains(got, "token") {
		p.t.Errorf("the address holds a secret: %s", got)
	}
}
