package console_test

import (
	"fmt"
	"net/http"
	"strings"
)

// servePanel answers as the edge does for a viewer and a terminal, sandboxed
// into an opaque origin. What the pages show is drawn, for the screenshots.
func servePanel(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads allow-pointer-lock")
	if strings.HasSuffix(r.URL.Path, "/vnc.html") {
		fmt.Fprint(w, viewerPage)
		return
	}
	fmt.Fprint(w, terminalPage)
}

const viewerPage = `<!doctype html><title>viewer</title><style>
body{margin:0;height:100vh;display:grid;place-items:center;background:#2b2e33;font:14px sans-serif}
svg{width:100%;max-height:100vh;aspect-ratio:1280/800}</style>
<svg viewBox="0 0 1280 800"><rect width="1280" height="800" fill="#dfe1e5"/><rect width="1280" height="42" fill="#cdd0d6"/>
<rect x="12" y="8" width="220" height="34" rx="8" fill="#fff"/><text x="30" y="30" font-size="15" fill="#333">Example Domain</text>
<rect y="42" width="1280" height="44" fill="#fff"/><rect x="120" y="50" width="980" height="28" rx="14" fill="#eef0f3"/>
<text x="140" y="69" font-size="15" fill="#444">example.com</text><rect y="86" width="1280" height="714" fill="#f6f6f8"/>
<rect x="320" y="190" width="640" height="260" rx="8" fill="#fff"/><text x="360" y="260" font-size="36" fill="#222">Example Domain</text>
<text x="360" y="310" font-size="18" fill="#555">This domain is for use in illustrative examples in documents.</text>
<text x="360" y="370" font-size="18" fill="#3367d6">More information…</text></svg><p id="ready" hidden>viewer</p>`

const terminalPage = `<!doctype html><title>terminal</title><style>
body{margin:0;padding:8px;height:100vh;box-sizing:border-box;background:#14161a;color:#d6d9de;font:13px/1.4 monospace;white-space:pre-wrap}
b{color:#7cc78a;font-weight:400}i{background:#d6d9de;color:#14161a;font-style:normal}</style><b>cubeplex@sandbox</b>:/workspace$ ls
README.md  app.py  data
<b>cubeplex@sandbox</b>:/workspace$ <i> </i>`
