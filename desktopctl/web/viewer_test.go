package web_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/cubeplexai/cubepod/desktopctl/viewer"
	"github.com/cubeplexai/cubepod/desktopctl/x11"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// start runs a program until the test ends or it does, and tells the latter.
func start(t *testing.T, cmd *exec.Cmd) <-chan struct{} {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM) // x11vnc gives its shared memory back
		late := time.AfterFunc(testutil.Patience, func() { cmd.Process.Kill() })
		defer late.Stop()
		<-done
	})
	return done
}

// startDesktop runs a display with a VNC server and gives the display's name
// and the way to the server.
func startDesktop(t *testing.T) (string, func(context.Context) (net.Conn, error)) {
	t.Helper()
	xvfb, x11vnc := testutil.NeedProgram(t, "Xvfb"), testutil.NeedProgram(t, "x11vnc")
	ready, number, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	x := exec.Command(xvfb, "-displayfd", "3", "-screen", "0", "1280x800x24", "-nolisten", "tcp")
	x.ExtraFiles = []*os.File{number}
	start(t, x)
	number.Close()
	line, err := bufio.NewReader(ready).ReadString('\n')
	if err != nil {
		t.Fatalf("Xvfb names no display: %v", err)
	}
	display := ":" + strings.TrimSpace(line)
	server, err := x11.Dial(t.Context(), display)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() }) // Xvfb forgets all when the last client leaves
	if err := server.FreeKeys(); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "vnc.sock")
	start(t, exec.Command("/bin/sh", "-c", `ulimit -n 256 && exec "$@"`, "sh", x11vnc,
		"-display", display, "-unixsock", socket, "-rfbport", "0", "-rfbportv6", "0", "-no6",
		"-norc", "-xkb", "-forever", "-shared", "-nopw", "-quiet"))
	return display, viewer.Dial(socket)
}

// A person sees the display and works in it, in a frame of opaque origin.
func TestViewerPage(t *testing.T) {
	xmessage := testutil.NeedProgram(t, "xmessage")
	display, rfb := startDesktop(t)
	message := exec.Command(xmessage, "-display", display, "-geometry", "1280x800+0+0", "-default", "okay", "-buttons", "okay,cancel",
		"-bg", "#2e5c8a", "-fg", "white", "A real window on a real display.")
	closed := start(t, message)

	v := viewer.New(viewer.Options{WebDir: filepath.Join(pages(t), "viewer"), RFB: rfb})
	t.Cleanup(func() { v.Close() })
	e := newEdge(t, 8080, v)
	tb := e.browse(t, "vnc.html?autoconnect=true&resize=scale&usr=x")

	// Readable at its centre, and of the window's colour there.
	tb.until(`(c => c && c.width ? [...c.getContext("2d").getImageData(1000, 600, 1, 1).data].join() : "")(document.querySelector("canvas"))`, "46,92,138,255")
	tb.until(shown, "")
	if focused := tb.text(`document.activeElement === document.body`); focused != "true" {
		t.Error("the page takes the focus at load")
	}
	if scrolls := tb.text(`document.documentElement.scrollHeight > innerHeight || document.documentElement.scrollWidth > innerWidth`); scrolls != "false" {
		t.Error("the page scrolls")
	}
	if on := tb.text(`document.elementFromPoint(innerWidth / 2, innerHeight / 2).tagName`); on != "CANVAS" {
		t.Errorf("%s lies over the canvas", on)
	}
	tb.picture("viewer")

	// A click gives it the keyboard; Return presses the window's button.
	tb.do(chromedp.MouseClickXY(480, 400), chromedp.KeyEvent("\r"))
	<-closed
	if code := message.ProcessState.ExitCode(); code != 101 {
		t.Errorf("the window closed with %d, want 101 for its first button", code)
	}
	tb.picture("viewer-empty")
}

func TestViewerPageWhenRefused(t *testing.T) {
	_, rfb := startDesktop(t)
	for _, tt := range refused {
		t.Run(tt.err.Code, func(t *testing.T) {
			v := viewer.New(viewer.Options{WebDir: filepath.Join(pages(t), "viewer"), RFB: rfb})
			t.Cleanup(func() { v.Close() })
			e := newEdge(t, 8080, v)
			tb := e.browse(t, "")
			tb.until(`document.querySelector("canvas")?.width`, "1280") // connected
			e.refuse.Store(tt.err)
			v.Close()
			tb.until(shown, tt.want)
			tb.picture("viewer-" + tt.err.Code)
			if n := e.navigations.Load(); n != 1 {
				t.Errorf("the page navigated %d times by itself", n-1)
			}
		})
	}
}

// A relay that ends and comes back costs the page nothing but a moment.
func TestViewerPageComesBack(t *testing.T) {
	_, rfb := startDesktop(t)
	var current atomic.Pointer[viewer.Viewer]
	fresh := func() *viewer.Viewer {
		v := viewer.New(viewer.Options{WebDir: filepath.Join(pages(t), "viewer"), RFB: rfb})
		t.Cleanup(func() { v.Close() })
		return v
	}
	current.Store(fresh())
	e := newEdge(t, 8080, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		current.Load().ServeHTTP(w, r)
	}))
	tb := e.browse(t, "")
	const canvas = `document.querySelector("canvas")?.width`
	tb.until(canvas, "1280")
	tb.do(chromedp.MouseClickXY(400, 200)) // it has the keyboard now
	current.Swap(fresh()).Close()
	tb.until(`document.querySelector("canvas")?.width ?? "gone"`, "1280")
	tb.until(`document.activeElement.id`, "field")
	tb.until(shown, "")
	if n := e.navigations.Load(); n != 1 {
		t.Errorf("the page navigated %d times by itself", n-1)
	}
}

// A panel for watching shows the picture and says that it is one.
func TestViewerPageForWatching(t *testing.T) {
	_, rfb := startDesktop(t)
	v := viewer.New(viewer.Options{WebDir: filepath.Join(pages(t), "viewer"), RFB: rfb})
	t.Cleanup(func() { v.Close() })
	e := newEdge(t, 8080, v)
	tb := e.browse(t, "?view_only=true")
	tb.until(`document.querySelector("canvas")?.width`, "1280")
	tb.until(`document.body.dataset.mode`, "view")
	tb.until(shown, "")
	tb.do(chromedp.MouseClickXY(480, 300)) // says why nothing happens, for a moment
	tb.until(shown, "View only")
	tb.picture("viewer-view-only")
	tb.until(shown, "")
}
