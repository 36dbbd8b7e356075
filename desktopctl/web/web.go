// Package web is what the guest's viewer and terminal share: their pages,
// built into one folder each by build.sh, and the WebSocket under each page.
//
// Both servers listen on the guest's loopback and are guarded by package
// loopback, which is where Origin and Host are checked; nothing here does.
package web

import (
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path"

	"github.com/cubeplexai/cubepod/internal/apierror"
)

// Pages serves a page built by build.sh: index.html at each of names, its
// script and style beside it. Queries are ignored. Answers may be stored but
// are checked again at every load, so that a page and its script always come
// from one build.
func Pages(dir string, names ...string) http.Handler {
	mux := http.NewServeMux()
	for _, name := range names {
		mux.HandleFunc("GET "+name, func(w http.ResponseWriter, r *http.Request) {
			serveFile(w, r, dir, "index.html")
		})
	}
	mux.HandleFunc("GET /{file}", func(w http.ResponseWriter, r *http.Request) {
		serveFile(w, r, dir, r.PathValue("file"))
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		apierror.Write(w, apierror.New(apierror.NotFound, "", "there is no such page"))
	})
	return mux
}

func serveFile(w http.ResponseWriter, r *http.Request, dir, name string) {
	f, info, err := open(dir, name)
	if err != nil {
		apierror.Write(w, apierror.Wrap(err, apierror.NotFound, "", "there is no such page"))
		return
	}
	defer f.Close()
	h := w.Header()
	h.Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Content-Type-Options", "nosniff")
	http.ServeContent(w, r, name, info.ModTime(), f)
}

// open opens a file of dir itself; a name that leads out of it, or to a
// folder, does not exist.
func open(dir, name string) (*os.File, os.FileInfo, error) {
	f, err := os.OpenInRoot(dir, name)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}
