package web_test

import (
	"path/filepath"
	"testing"

	"github.com/cubeplexai/cubepod/desktopctl/viewer"
)

// What is pasted arrives whole where the server can take it, and readable where
// it cannot.
func TestViewerPageClipboard(t *testing.T) {
	const text = "é 汉字 😀"
	for unicode, want := range map[bool]string{true: "unicode: é 汉字 😀", false: "latin-1: \xe9 ?? ?"} {
		t.Run(want[:7], func(t *testing.T) {
			server := newVNCServer(t)
			v := viewer.New(viewer.Options{WebDir: filepath.Join(pages(t), "viewer"), RFB: server.dial, Unicode: unicode})
			t.Cleanup(func() { v.Close() })
			tb := newEdge(t, 8080, v).browse(t, "")
			tb.until(`document.querySelector("canvas")?.width`, "640")
			tb.paste(text)
			select {
			case got := <-server.cut:
				if got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			case <-tb.ctx.Done():
				t.Error("nothing arrives")
			}
		})
	}
}
