package console_test

import (
	"archive/tar"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
)

// file is a file or folder of the fake's one file system.
type file struct {
	dir  bool
	link string
	data []byte
	at   time.Time
}

// put makes a file, ahead of what a test does.
func (f *fakeAPI) put(name, data string) {
	f.change(func() { f.files[name] = &file{data: []byte(data), at: time.Now().Add(-3 * time.Minute)} })
}

// content is a file's, or false when there is none.
func (f *fakeAPI) content(name string) (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if one := f.files[name]; one != nil {
		return string(one.data), true
	}
	return "", false
}

func (f *fakeAPI) serveFiles(api *http.ServeMux) {
	api.HandleFunc("GET /sandboxes/{id}/files/list", f.listFiles)
	api.HandleFunc("GET /sandboxes/{id}/files", f.readFile)
	api.HandleFunc("PUT /sandboxes/{id}/files", f.writeFile)
	api.HandleFunc("DELETE /sandboxes/{id}/files", f.removeFile)
	api.HandleFunc("POST /sandboxes/{id}/files/mkdir", f.makeFolder)
	api.HandleFunc("GET /sandboxes/{id}/archive", f.archive)
}

func absent(w http.ResponseWriter, name string) {
	apierror.Write(w, apierror.New(apierror.NotFound, "file_not_found", "%s does not exist", name))
}

func (f *fakeAPI) listFiles(w http.ResponseWriter, r *http.Request) {
	dir := r.URL.Query().Get("path")
	f.mu.Lock()
	defer f.mu.Unlock()
	if one := f.files[dir]; one == nil {
		absent(w, dir)
		return
	} else if !one.dir {
		apierror.Write(w, apierror.New(apierror.Invalid, "not_a_directory", "%s is no directory", dir))
		return
	}
	all := poddapi.Entries{Entries: []poddapi.Entry{}}
	for name, one := range f.files {
		if name != dir && path.Dir(name) == dir {
			all.Entries = append(all.Entries, poddapi.Entry{
				Name: path.Base(name), Path: name, IsDir: one.dir, Size: int64(len(one.data)), MTime: one.at, Link: one.link,
			})
		}
	}
	slices.SortFunc(all.Entries, func(a, b poddapi.Entry) int { return strings.Compare(a.Name, b.Name) })
	answer(w, http.StatusOK, all)
}

func (f *fakeAPI) readFile(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("path")
	if table, ok := f.socketTable(name); ok {
		_, _ = io.WriteString(w, table)
		return
	}
	f.mu.Lock()
	one, cut := f.files[name], f.cut
	f.cut = false
	f.mu.Unlock()
	if one == nil {
		absent(w, name)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if cut { // half of it, and then the network goes away
		w.Header().Set("Content-Length", strconv.Itoa(len(one.data)))
		w.Header().Set("Last-Modified", one.at.UTC().Format(http.TimeFormat))
		_, _ = w.Write(one.data[:len(one.data)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	http.ServeContent(w, r, "", one.at, strings.NewReader(string(one.data)))
}

func (f *fakeAPI) writeFile(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("path")
	f.mu.Lock()
	cut := f.cut
	f.cut = false
	f.mu.Unlock()
	if cut {
		panic(http.ErrAbortHandler)
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client left
	}
	f.change(func() {
		if one := f.files[name]; one != nil && one.dir {
			apierror.Write(w, apierror.New(apierror.Invalid, "not_regular", "%s is no regular file", name))
			return
		}
		for dir := path.Dir(name); f.files[dir] == nil; dir = path.Dir(dir) {
			f.files[dir] = &file{dir: true, at: time.Now()}
		}
		f.files[name] = &file{data: data, at: time.Now()}
		answer(w, http.StatusOK, poddapi.Written{Path: name, Size: int64(len(data))})
	})
}

func (f *fakeAPI) removeFile(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("path")
	f.change(func() {
		if f.files[name] == nil {
			absent(w, name)
			return
		}
		for other := range f.files {
			if other == name || strings.HasPrefix(other, name+"/") {
				delete(f.files, other)
			}
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

func (f *fakeAPI) makeFolder(w http.ResponseWriter, r *http.Request) {
	var req poddapi.MkdirRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		apierror.Write(w, apierror.New(apierror.Invalid, "invalid_body", "want a path as JSON"))
		return
	}
	f.change(func() {
		f.files[req.Path] = &file{dir: true, at: time.Now()}
		answer(w, http.StatusOK, poddapi.Entry{Name: path.Base(req.Path), Path: req.Path, IsDir: true})
	})
}

func (f *fakeAPI) archive(w http.ResponseWriter, r *http.Request) {
	dir := r.URL.Query().Get("path")
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Header().Set("Content-Type", "application/x-tar")
	out := tar.NewWriter(w)
	for name, one := range f.files {
		if !one.dir && strings.HasPrefix(name, dir+"/") {
			_ = out.WriteHeader(&tar.Header{Name: strings.TrimPrefix(name, dir+"/"), Size: int64(len(one.data)), Mode: 0o644})
			_, _ = out.Write(one.data)
		}
	}
	_ = out.Close()
}
