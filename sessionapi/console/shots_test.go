package console_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var shots = flag.String("shots", "", "folder to keep the screenshots of the console in")

// TestScreenshots proves that no page scrolls sideways on any screen, and lets
// a person look at them: go test -run Screenshots -shots DIR.
func TestScreenshots(t *testing.T) {
	dir := *shots
	if dir == "" {
		dir = t.TempDir()
	}
	for _, screen := range []struct {
		name          string
		width, height int64
	}{{"wide", 1400, 900}, {"phone", 390, 844}, {"small", 360, 640}} {
		for _, scheme := range []string{"light", "dark"} {
			t.Run(screen.name+"-"+scheme, func(t *testing.T) {
				p := newPage(t)
				p.do(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
					_, err := cdp.Call(ctx, tab, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
						Width: screen.width, Height: screen.height, DeviceScaleFactor: 1, Mobile: screen.width < 800,
					})
					if err != nil {
						return err
					}
					_, err = cdp.Call(ctx, tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
						Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
					})
					return err
				}))
				shoot(t, p, func(name string) {
					if p.eval("document.documentElement.scrollWidth <= innerWidth") != "true" {
						t.Errorf("%s scrolls sideways", name)
					}
					png, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
					if err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(filepath.Join(dir, screen.name+"-"+scheme+"-"+name+".png"), png, 0o644); err != nil {
						t.Fatal(err)
					}
				})
			})
		}
	}
}

func shoot(t *testing.T, p *page, take func(name string)) {
	f := newFakeAPI(t)
	p.open(f.URL + "/")
	p.write("#key", "wrong"+kb.Enter)
	p.sees(".problem", "This key was not accepted.")
	take("1-key")
	p.enter(f, "")
	p.sees(".empty", "No sandboxes")
	take("2-empty")

	f.add(desktopID, "desktop", "running").Metadata = map[string]string{"agent": "researcher", "run": "2026-11-30.4"}
	f.add(baseID, "base", "running").EndAt = f.sandboxes[0].StartedAt.Add(12*60*1e9 + 40*1e9)
	f.add(pausedID, "desktop", "paused")
	f.add("cr8a7ing000000000004", "desktop", "creating")
	broken := f.add("fa11ed00000000000005", "base", "failed")
	f.change(func() { broken.Reason = "the image cubepod/base:dev cannot be pulled" })
	p.sees(".row", baseID)
	take("3-list")

	p.click("New sandbox")
	p.sees("dialog", "Template")
	take("4-create")
	p.press(kb.Escape)

	p.eval("location.hash = '#/sandboxes/" + desktopID + "'")
	p.sees(".stage", "not open")
	take("5-desktop-closed")
	release := f.holdCall("POST /sandboxes/" + desktopID + "/desktop/start")
	p.click("Open desktop")
	p.sees(".stage", "Starting the desktop")
	p.sees(".progress .number", "1 s")
	take("6-desktop-starting")
	release()
	p.until("document.querySelectorAll('iframe').length === 2")
	p.until("[...document.querySelectorAll('.pane header > .dim')].every((n) => n.textContent === '')")
	take("7-desktop")

	p.click("Commands")
	take("8-commands-none")
	p.write("#command", "git clone https://example.com/app.git"+kb.Enter)
	p.sees(".result .outcome", "Running")
	f.print("proc-1", "Cloning into 'app'...\nfatal: unable to access 'https://example.com/app.git/': The requested URL returned error: 404\n")
	f.end("proc-1", 128)
	p.sees(".result .outcome", "Exit 128")
	p.write("#command", "ls -la /workspace"+kb.Enter)
	p.until("document.querySelectorAll('.history li').length === 2")
	f.print("proc-2", "total 12\ndrwxr-xr-x 3 cubeplex cubeplex 4096 Nov 30 14:55 .\ndrwxr-xr-x 1 root     root     4096 Nov 30 14:41 ..\n-rw-r--r-- 1 cubeplex cubeplex  812 Nov 30 14:47 README.md\n")
	f.end("proc-2", 0)
	p.sees(".result .outcome", "Exit 0")
	p.write("#command", "python -m pytest -q tests"+kb.Enter)
	p.until("document.querySelectorAll('.history li').length === 3")
	f.print("proc-3", "........................................................  [ 41%]\n........................................................  [ 82%]\n")
	p.sees(".output", "82%")
	p.sees(".result .number", "1 s")
	take("9-commands")

	p.click("Delete")
	p.sees("dialog", "cannot be undone")
	take("a-delete")
	p.press(kb.Escape)
	p.eval("location.hash = '#/sandboxes/" + pausedID + "'")
	p.sees(".stage", "paused")
	take("b-paused")
	p.eval("location.hash = '#/sandboxes/fa11ed00000000000005'")
	p.sees("dl.facts", "cannot be pulled")
	take("c-failed")
	f.drop("fa11ed00000000000005")
	p.sees(".notice", "is gone")
	take("d-gone")
}
