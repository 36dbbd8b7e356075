package main_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

// paintsRed clears a canvas to red with each WebGL there is and tells the site
// which pixel came of it.
const paintsRed = `<script>
for (const version of ['webgl', 'webgl2']) {
	const gl = document.createElement('canvas').getContext(version), pixel = new Uint8Array(4);
	gl?.clearColor(1, 0, 0, 1);
	gl?.clear(gl.COLOR_BUFFER_BIT);
	gl?.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, pixel);
	fetch('/saw?' + version + '=' + pixel);
}
</script>`

// Pages get WebGL although the browser itself paints without a GPU.
func TestWebGL(t *testing.T) {
	if !enter(t) {
		return
	}
	saw := make(chan string, 10)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			w.Header().Set("Content-Type", "text/html")
			w.Write([]byte(paintsRed))
		case "/saw":
			saw <- r.URL.RawQuery
		}
	}))
	t.Cleanup(site.Close)
	start(t, "--url", site.URL)
	missing := map[string]bool{"webgl=255,0,0,255": true, "webgl2=255,0,0,255": true}
	limit := time.After(testutil.Patience)
	for len(missing) > 0 {
		select {
		case got := <-saw:
			if !missing[got] {
				t.Fatalf("the page saw %s, want %v", got, missing)
			}
			delete(missing, got)
		case <-limit:
			t.Fatalf("the page says nothing of %v", missing)
		}
	}
}
