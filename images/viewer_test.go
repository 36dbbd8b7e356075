package images_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

// Who looks on while the screen changes its size sees all of the new one, with
// either VNC server, and does nothing for it.
func TestResizedViewer(t *testing.T) {
	for _, server := range []string{"x0vncserver", "x11vnc"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			// With room for a second browser, which is the person's.
			g := newGuest(t, "--memory", "2g", "--memory-swap", "2g")
			g.run("1000:1000", "env", "CUBEPOD_VNC="+server, programsDir+"/inside", "resize")
		})
	}
}

// resizeScreen looks on while the screen changes its size.
func resizeScreen([]string) error {
	ctx, cancel := context.WithTimeout(context.Background(), testutil.Patience)
	defer cancel()
	if err := startDesktop(ctx, "1280x800"); err != nil {
		return err
	}
	viewer, closeViewer, err := openViewer(ctx)
	defer closeViewer()
	if err != nil {
		return err
	}
	const loaded = `window.loaded ??= performance.timeOrigin`
	first, err := chromedp.Run(viewer, chromedp.Evaluate[float64](loaded))
	if err != nil {
		return err
	}
	for _, size := range []string{"1920x1080", "800x600", "1280x800"} {
		if err := startDesktop(ctx, size); err != nil {
			return err
		}
		if err := becomes(viewer, `(c => c && c.width + "x" + c.height)(document.querySelector("canvas"))`, size); err != nil {
			return err
		}
		if err := becomes(viewer, `document.getElementById("bar").hidden`, "true"); err != nil {
			return err
		}
	}
	now, err := chromedp.Run(viewer, chromedp.Evaluate[float64](loaded))
	if err == nil && now != first {
		err = errors.New("the viewer was loaded again")
	}
	return err
}

func startDesktop(ctx context.Context, size string) error {
	if out, err := exec.CommandContext(ctx, ctl, "start", "--resolution", size+"x24").CombinedOutput(); err != nil {
		return fmt.Errorf("start with %s: %w: %s", size, err, out)
	}
	return nil
}

// openViewer opens the desktop's viewer in a browser of its own, and waits for
// its picture.
func openViewer(ctx context.Context) (viewer context.Context, closeViewer func(), err error) {
	alloc, cancelAlloc := chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath("chromium"), chromedp.NoSandbox, chromedp.DisableGPU)...)
	viewer, cancelTab := chromedp.NewContext(alloc)
	closeViewer = func() { cancelTab(); cancelAlloc() }
	if err := chromedp.Do(viewer, chromedp.Navigate("http://127.0.0.1:8080/")); err != nil {
		return nil, closeViewer, fmt.Errorf("the viewer: %w", err)
	}
	return viewer, closeViewer, becomes(viewer, `document.querySelector("canvas")?.width > 0 && document.getElementById("bar").hidden`, "true")
}

// becomes waits for an expression of a page to give want.
func becomes(tab context.Context, expression, want string) error {
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		got, err := chromedp.Run(tab, chromedp.Evaluate[string]("String("+expression+")"))
		if err != nil {
			return fmt.Errorf("%s: %w", expression, err)
		}
		if got == want {
			return nil
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return fmt.Errorf("%s is %q, want %q", expression, got, want)
		}
	}
}
