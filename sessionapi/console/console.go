// Package console serves the web page on which a person lists sandboxes, opens
// their desktops and runs commands in them.
//
// The page is a client of the session API like any other: it is served from
// the API's origin, holds the caller's API key in the browser, and knows
// nothing the API did not tell it. It is plain HTML, CSS and JavaScript modules
// kept in the binary. There is no build step: a server joins the modules into
// one script when it starts.
package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
)

// Root is where everything but the page itself is served.
const Root = "/console/"

//go:embed web
var web embed.FS

// contentTypes is complete for what web holds. The host's own table decides
// nothing: one that calls JavaScript text/plain would break the page.
var contentTypes = map[string]string{
	".css":  "text/css; charset=utf-8",
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// policy lets the page run its own scripts, speak to its own origin and frame
// panels, which are always of another origin. Nothing may frame the page, and
// no string ever becomes markup or code in it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self' data:; frame-src http: https:; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// asset is one file of the page.
type asset struct {
	name string
	body []byte
	etag string
}

// Handler serves the page at "/" and "/console/" and what it loads below
// "/console/". Anything else is 404 in the API's error form.
func Handler() http.Handler {
	assets := load()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := assets[r.URL.Path]
		if !ok {
			apierror.Write(w, apierror.New(apierror.NotFound, "", "there is nothing at this address"))
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "use GET", http.StatusMethodNotAllowed)
			return
		}
		h := w.Header()
		h.Set("Content-Type", contentTypes[path.Ext(a.name)])
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		// Files of one release belong together, so each use is revalidated.
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", a.etag)
		http.ServeContent(w, r, a.name, time.Time{}, bytes.NewReader(a.body))
	})
}

// load gives the assets by the path they are served at: the page, its script,
// its style and its icon.
func load() map[string]asset {
	dir, err := fs.Sub(web, "web")
	if err != nil {
		panic(err) // the folder is part of the binary
	}
	script, err := bundle(dir, "app.js")
	if err != nil {
		panic(err) // and so are the modules
	}
	assets := map[string]asset{}
	add := func(name string, body []byte) {
		sum := sha256.Sum256(body)
		assets[Root+name] = asset{name: name, body: body, etag: `"` + hex.EncodeToString(sum[:12]) + `"`}
	}
	add("console.js", script)
	read := func(name string) []byte {
		body, err := fs.ReadFile(dir, name)
		if err != nil {
			panic(err)
		}
		return body
	}
	add("style.css", bytes.Join([][]byte{read("ground.css"), read("views.css"), read("narrow.css")}, []byte("\n")))
	for _, name := range []string{"index.html", "icon.svg"} {
		add(name, read(name))
	}
	page := assets[Root+"index.html"]
	assets["/"], assets[Root] = page, page
	return assets
}
