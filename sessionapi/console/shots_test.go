package console_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/cubeplexai/cubepod/internal/apierror"
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
	p.sees(".result .outcome", "Failed with exit code 128")
	p.write("#command", "ls -la /workspace"+kb.Enter)
	p.until("document.querySelectorAll('.history li').length === 2")
	f.print("proc-2", "total 12\ndrwxr-xr-x 3 cubeplex cubeplex 4096 Nov 30 14:55 .\ndrwxr-xr-x 1 root     root     4096 Nov 30 14:41 ..\n-rw-r--r-- 1 cubeplex cubeplex  812 Nov 30 14:47 README.md\n")
	f.end("proc-2", 0)
	p.sees(".result .outcome", "Succeeded")
	p.write("#command", "python -m pytest -q tests"+kb.Enter)
	p.until("document.querySelectorAll('.history li').length === 3")
	f.print("proc-3", "........................................................  [ 41%]\n........................................................  [ 82%]\n")
	p.sees(".output", "82%")
	p.sees(".result .number", "1 s")
	take("9-commands")

	shootFiles(f, p, take)
	shootPorts(f, p, take)
	shootShare(p, take)

	p.click("Delete")
	p.sees("dialog", "cannot be undone")
	take("a-delete")
	p.press(kb.Escape)
	p.eval("location.hash = '#/sandboxes/" + pausedID + "'")
	p.sees(".stage", "paused")
	take("b-paused")
	p.eval("location.hash = '#/sandboxes/fa11ed00000000000005'")
	p.sees(".badge", "cannot be pulled")
	take("c-failed")
	f.drop("fa11ed00000000000005")
	p.sees(".notice", "is gone")
	take("d-gone")
	f.failCall("GET /v2/sandboxes", apierror.New(apierror.Unavailable, "store_unavailable", "the store does not answer"))
	p.sees(".line", "Trying again")
	take("e-away")
}

func shootFiles(f *fakeAPI, p *page, take func(string)) {
	p.click("Files")
	p.sees(".stage", "This folder is empty")
	take("f-files-none")
	f.change(func() {
		for _, dir := range []string{"app", "app/tests", "node_modules", ".cache"} {
			f.files["/workspace/"+dir] = &file{dir: true, at: time.Now().Add(-26 * time.Hour)}
		}
		f.files["/workspace/latest"] = &file{link: "app/build/2026-11-30", at: time.Now().Add(-2 * time.Hour)}
		f.files["/workspace/video.mp4"] = &file{data: make([]byte, 4_300_000), at: time.Now().Add(-40 * time.Second)}
	})
	f.put("/workspace/README.md", strings.Repeat("x", 812))
	f.put("/workspace/a name, with \"quotes\" & <b>markup 100%.txt", "y")
	f.put("/workspace/bro\ufffdken", "z")
	f.put("/workspace/two\nlines", "z")
	f.put("/workspace/package-lock.json", strings.Repeat("x", 48_211))
	p.click("Read the folder again")
	p.sees(".listing", "README.md")
	take("g-files")
	release := f.holdCall("PUT /sandboxes/" + desktopID + "/files")
	f.failCall("PUT /sandboxes/"+desktopID+"/files", apierror.New(apierror.Invalid, "no_space", "the disk of the sandbox is full"))
	choose(p, map[string]string{"report.pdf": "some bytes", "a photo with a rather long name that goes on.jpg": strings.Repeat("x", 3000), "last.txt": "x"})
	p.sees(".transfer", "Waiting")
	take("h-files-uploading")
	release()
	p.sees(".tray", "3 failed")
	take("i-files-failed")
	p.eval("document.querySelectorAll('.transfer .tools button:last-child').forEach((n) => n.click())")
	p.until("document.querySelector('.tray').hidden")
	p.eval("document.querySelector('.files').dispatchEvent(new DragEvent('dragover', {bubbles: true, cancelable: true, dataTransfer: (() => { const d = new DataTransfer(); d.items.add(new File(['x'], 'x')); return d; })()}))")
	p.sees(".drop", "Drop to upload to /workspace")
	take("j-files-drop")
	p.eval("document.querySelector('.files').dispatchEvent(new DragEvent('dragleave', {bubbles: true}))")
}

func shootPorts(f *fakeAPI, p *page, take func(string)) {
	p.click("Ports")
	p.sees(".ports", "Nothing listens yet")
	take("k-ports-none")
	f.change(func() {
		f.ports = map[int]bool{7681: true, 8080: true, 9222: true, 5173: true}
		f.listening = map[int]bool{7681: true, 8080: true, 9222: true, 3000: true}
	})
	p.sees(".ports", "3000")
	take("l-ports")
	p.eval("[...document.querySelectorAll('.ports .row')].find((n) => n.innerText.includes('3000')).querySelector('.open').click()")
	p.until("document.querySelector('.ports iframe')?.src.includes('token-p')")
	p.until("document.querySelector('.ports .pane header > .dim').textContent === ''")
	take("m-ports-open")
}

func shootShare(p *page, take func(string)) {
	p.click("Share")
	p.sees(".share", "Share a link")
	p.click("Create link")
	p.sees(".links", "good until")
	p.until("document.activeElement.innerText.trim() === 'Copy'")
	p.press(kb.Enter)
	p.sees(".links", "Copied")
	take("n-share")
	p.click("Revoke all links")
	p.sees("dialog", "stops working at once")
	take("o-share-revoke")
	p.press(kb.Escape)
}
