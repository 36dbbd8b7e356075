package images_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

// Text that comes to the viewer without keys arrives in the browser's page,
// however many of its characters have no key of their own.
func TestTypedText(t *testing.T) {
	t.Parallel()
	// With room for a second browser, which is the person's.
	g := newGuest(t, "--memory", "2g", "--memory-swap", "2g")
	g.run("1000:1000", programsDir+"/inside", "type")
}

// typeText types in the viewer and reads what came of it in the page that the
// desktop shows.
func typeText([]string) error {
	ctx, cancel := context.WithTimeout(context.Background(), testutil.Patience)
	defer cancel()
	alloc, cancelAlloc := remote.NewAllocator(ctx, "http://127.0.0.1:9222")
	defer cancelAlloc()
	desktop, cancelDesktop := chromedp.NewContext(alloc)
	defer cancelDesktop()
	const form = `data:text/html;charset=utf-8,<textarea autofocus style="position:fixed;inset:0"></textarea>`
	if err := chromedp.Do(desktop, chromedp.Navigate(form)); err != nil {
		return fmt.Errorf("the desktop's page: %w", err)
	}
	if _, err := chromedp.Call(desktop, page.BringToFront, cdp.Empty{}); err != nil {
		return err
	}
	viewer, closeViewer, err := openViewer(ctx)
	defer closeViewer()
	if err != nil {
		return err
	}
	if err := chromedp.Do(viewer, chromedp.MouseClickXY(400, 400)); err != nil {
		return err
	}
	if err := becomes(desktop, `document.hasFocus()`, "true"); err != nil {
		return err
	}
	for first := range 10 {
		const mixed = "汉字 ß 👍🏽 é Привет, World! {@}"
		for _, text := range []string{mixed, ideographs(first, 60), mixed} {
			if err := types(viewer, desktop, text); err != nil {
				return fmt.Errorf("time %d: %w", first, err)
			}
		}
	}
	return nil
}

// ideographs gives a text of n characters, of which none is in the text of
// another number.
func ideographs(number, n int) string {
	const block = '\u4e00'
	text := make([]rune, n)
	for i := range text {
		text[i] = block + rune(number*n+i)
	}
	return string(text)
}

// types inserts text in the viewer as an emoji picker does, all at once, and
// waits for it in the desktop's page.
func types(viewer, desktop context.Context, text string) error {
	if _, err := chromedp.Call(viewer, input.InsertText, input.InsertTextParams{Text: text}); err != nil {
		return err
	}
	if err := becomes(desktop, `document.querySelector("textarea").value`, text); err != nil {
		return err
	}
	_, err := chromedp.Run(desktop, chromedp.Evaluate[string](`document.querySelector("textarea").value = ""`))
	return err
}
