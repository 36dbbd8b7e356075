package console_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/sessionapi/console"
)

const key = "test-key-1"

// fakeAPI answers as the session API does, from memory. Tests decide what
// commands print and how calls fail.
type fakeAPI struct {
	*httptest.Server
	panels *httptest.Server

	mu sync.Mutex // guards the fields below
	// changed is closed and replaced whenever something changes.
	changed   chan struct{}
	key       string
	sandboxes []*box
	commands  map[string]*command
	fail      map[string]*apierror.Error // by "METHOD path"
	hold      map[string]chan struct{}   // calls wait here, by "METHOD path"
	starts    int                        // of the desktop
	streams   bool                       // there is a stream of changes
	cut       bool                       // the next piece of output is the last before the connection breaks
	files     map[string]*file           // by path
	ports     map[int]bool               // registered
	listening map[int]bool
	panelsOut []panelRequest
	// panelAddress is the next panel's, when set.
	panelAddress string
	revoked      int
	extended     int
	idle         int
}

type box struct {
	ID        string            `json:"sandboxID"`
	Template  string            `json:"templateID"`
	State     string            `json:"state"`
	Reason    string            `json:"reason,omitempty"`
	Since     time.Time         `json:"stateSince"`
	StartedAt time.Time         `json:"startedAt"`
	EndAt     time.Time         `json:"endAt"`
	AutoPause bool              `json:"autoPause"`
	Metadata  map[string]string `json:"metadata,omitempty"`
}

func newFakeAPI(t *testing.T) *fakeAPI {
	f := &fakeAPI{
		key: key, changed: make(chan struct{}), commands: map[string]*command{},
		fail: map[string]*apierror.Error{}, hold: map[string]chan struct{}{},
		files: map[string]*file{"/": {dir: true}, "/workspace": {dir: true}}, ports: map[int]bool{}, listening: map[int]bool{},
	}
	page := console.Handler()
	api := http.NewServeMux()
	api.HandleFunc("GET /v2/sandboxes", f.list)
	api.HandleFunc("GET /v2/sandboxes/events", f.events)
	api.HandleFunc("POST /sandboxes", f.create)
	api.HandleFunc("GET /sandboxes/{id}", f.get)
	api.HandleFunc("DELETE /sandboxes/{id}", f.remove)
	api.HandleFunc("POST /sandboxes/{id}/pause", f.move("paused", http.StatusNoContent))
	api.HandleFunc("POST /sandboxes/{id}/resume", f.move("running", http.StatusCreated))
	api.HandleFunc("POST /sandboxes/{id}/desktop/start", f.startDesktop)
	api.HandleFunc("GET /sandboxes/{id}/commands", f.listCommands)
	api.HandleFunc("POST /sandboxes/{id}/commands/run", f.runCommand)
	api.HandleFunc("GET /sandboxes/{id}/commands/{cmd}/logs", f.logs)
	api.HandleFunc("POST /sandboxes/{id}/commands/{cmd}/kill", f.kill)

	api.HandleFunc("POST /sandboxes/{id}/timeout", f.timeout)
	f.serveFiles(api)
	f.servePorts(api)

	mux := http.NewServeMux()
	mux.Handle("GET /{$}", page)
	mux.Handle("GET /console/", page)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		call := r.Method + " " + r.URL.Path
		f.mu.Lock()
		wanted, failure, hold := f.key, f.fail[call], f.hold[call]
		f.mu.Unlock()
		if r.Header.Get("X-API-Key") != wanted {
			apierror.Write(w, apierror.New(apierror.Unauthorized, "", "the API key is missing or wrong"))
			return
		}
		if hold != nil {
			select {
			case <-hold:
			case <-r.Context().Done():
				return
			}
		}
		if failure != nil {
			apierror.Write(w, failure)
			return
		}
		api.ServeHTTP(w, r)
	})
	f.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		f.CloseClientConnections() // streams go on as long as the page
		f.Close()
	})
	f.panels = httptest.NewServer(http.HandlerFunc(servePanel))
	t.Cleanup(f.panels.Close)
	return f
}

// change runs fn under the lock and tells whoever waits.
func (f *fakeAPI) change(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
	close(f.changed)
	f.changed = make(chan struct{})
}

// add puts a sandbox there that has run for a while.
func (f *fakeAPI) add(id, template, state string) *box {
	b := &box{
		ID: id, Template: template, State: state, Since: time.Now().Add(-3 * time.Minute),
		StartedAt: time.Now().Add(-12 * time.Minute), EndAt: time.Now().Add(48*time.Minute + 30*time.Second),
	}
	f.change(func() { f.sandboxes = append(f.sandboxes, b) })
	return b
}

// failCall makes a call fail until it is called again with nil.
func (f *fakeAPI) failCall(call string, err *apierror.Error) {
	f.change(func() { f.fail[call] = err })
}

// holdCall makes a call wait until release is called.
func (f *fakeAPI) holdCall(call string) (release func()) {
	ch := make(chan struct{})
	f.change(func() { f.hold[call] = ch })
	return func() {
		f.change(func() { delete(f.hold, call) })
		close(ch)
	}
}

func (f *fakeAPI) find(w http.ResponseWriter, r *http.Request) *box {
	for _, b := range f.sandboxes {
		if b.ID == r.PathValue("id") {
			return b
		}
	}
	apierror.Write(w, apierror.New(apierror.NotFound, "sandbox_not_found", "there is no such sandbox"))
	return nil
}

func (f *fakeAPI) list(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sandboxes == nil {
		answer(w, http.StatusOK, []*box{})
		return
	}
	answer(w, http.StatusOK, f.sandboxes)
}

// events sends what is there anew with each change, and what is gone.
func (f *fakeAPI) events(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	streams := f.streams
	f.mu.Unlock()
	if !streams { // an older API
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, "event: ready\ndata: {}\n\n")
	known := map[string]bool{}
	for {
		f.mu.Lock()
		changed, now := f.changed, map[string]bool{}
		for _, b := range f.sandboxes {
			line, _ := json.Marshal(b) // plain values
			fmt.Fprintf(w, "event: sandbox\ndata: %s\n\n", line)
			now[b.ID] = true
		}
		f.mu.Unlock()
		for id := range known {
			if !now[id] {
				fmt.Fprintf(w, "event: gone\ndata: {\"sandboxID\":%q}\n\n", id)
			}
		}
		known = now
		_ = http.NewResponseController(w).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func (f *fakeAPI) create(w http.ResponseWriter, r *http.Request) {
	var req struct {
		TemplateID  string
		Timeout     int
		IdleTimeout int
		AutoPause   bool
		Metadata    map[string]string
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.TemplateID == "" || req.Timeout == 0 {
		apierror.Write(w, apierror.New(apierror.Invalid, "invalid_body", "want a template and a timeout as JSON"))
		return
	}
	f.change(func() {
		now := time.Now()
		b := &box{
			ID: fmt.Sprintf("new%017d", len(f.sandboxes)), Template: req.TemplateID, State: "running",
			StartedAt: now, EndAt: now.Add(time.Duration(req.Timeout) * time.Second),
			AutoPause: req.AutoPause, Metadata: req.Metadata,
		}
		f.idle = req.IdleTimeout
		f.sandboxes = append(f.sandboxes, b)
		answer(w, http.StatusCreated, b)
	})
}

func (f *fakeAPI) get(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b := f.find(w, r); b != nil {
		answer(w, http.StatusOK, b)
	}
}

func (f *fakeAPI) remove(w http.ResponseWriter, r *http.Request) {
	f.drop(r.PathValue("id"))
	w.WriteHeader(http.StatusNoContent)
}

// drop removes a sandbox as its end would.
func (f *fakeAPI) drop(id string) {
	f.change(func() {
		kept := []*box{}
		for _, b := range f.sandboxes {
			if b.ID != id {
				kept = append(kept, b)
			}
		}
		f.sandboxes = kept
	})
}

func (f *fakeAPI) move(state string, status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f.change(func() {
			b := f.find(w, r)
			if b == nil {
				return
			}
			b.State = state
			if status == http.StatusNoContent {
				w.WriteHeader(status)
			} else {
				answer(w, status, b)
			}
		})
	}
}

func (f *fakeAPI) timeout(w http.ResponseWriter, r *http.Request) {
	var req struct{ Timeout int }
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.Timeout == 0 {
		apierror.Write(w, apierror.New(apierror.Invalid, "invalid_timeout", "timeout is needed"))
		return
	}
	f.change(func() {
		b := f.find(w, r)
		if b == nil {
			return
		}
		f.extended = req.Timeout
		b.EndAt = time.Now().Add(time.Duration(req.Timeout) * time.Second)
		w.WriteHeader(http.StatusNoContent)
	})
}

func (f *fakeAPI) startDesktop(w http.ResponseWriter, r *http.Request) {
	f.change(func() {
		b := f.find(w, r)
		if b == nil {
			return
		}
		if b.Template == "base" {
			apierror.Write(w, apierror.New(apierror.Unsupported, "desktop_not_installed", "this sandbox's image has no desktop"))
			return
		}
		b.State = "running"
		f.starts++
		answer(w, http.StatusOK, map[string]any{
			"status":      "running",
			"desktopUrl":  fmt.Sprintf("%s/panel/token-d%d/vnc.html?autoconnect=true&resize=scale", f.panels.URL, f.starts),
			"terminalUrl": fmt.Sprintf("%s/panel/token-t%d/", f.panels.URL, f.starts),
			"cdpPort":     9222,
			"expiresAt":   time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
		})
	})
}

func answer(w http.ResponseWriter, status int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data)
}
