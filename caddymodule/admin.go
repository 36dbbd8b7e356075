package caddymodule

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/cubeplexai/cubepod/internal/session"
)

// Admin adds to Caddy's admin endpoint what an operator asks an edge:
//
//	GET  /cubepod/sessions   the open requests and streams, by sandbox and port
//	GET  /cubepod/cache      the records of sandboxes that the edge knows
//	POST /cubepod/revoke     {"sandbox":"<id>"}: ends what is open and refuses
//	                         every link made until now
//
// The answers name sandboxes, never tokens. Revoking here is this edge's own,
// for when the API cannot be reached: it lasts as long as the process, and the
// API's revocation reaches all edges.
type Admin struct{}

// CaddyModule returns the Caddy module information.
func (Admin) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.cubepod", New: func() caddy.Module { return new(Admin) }}
}

// Routes gives the endpoint's routes.
func (Admin) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{
		{Pattern: "/cubepod/sessions", Handler: caddy.AdminHandlerFunc(adminSessions)},
		{Pattern: "/cubepod/cache", Handler: caddy.AdminHandlerFunc(adminCache)},
		{Pattern: "/cubepod/revoke", Handler: caddy.AdminHandlerFunc(adminRevoke)},
	}
}

// eachState calls f with the states in use: one, unless a configuration changes.
func eachState(f func(*state)) {
	states.Range(func(_, v any) bool {
		if s, ok := v.(*state); ok {
			f(s)
		}
		return true
	})
}

func adminGet(w http.ResponseWriter, r *http.Request, v func() any) error {
	if r.Method != http.MethodGet {
		return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Message: "only GET"}
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(v())
}

// openPanel is what is open to one port of one sandbox.
type openPanel struct {
	Sandbox     session.ID `json:"sandbox"`
	Port        int        `json:"port"`
	Incarnation int64      `json:"incarnation"`
	Requests    int        `json:"requests"` // streams included
	Streams     int        `json:"streams"`
}

func adminSessions(w http.ResponseWriter, r *http.Request) error {
	return adminGet(w, r, func() any {
		out := []*openPanel{}
		eachState(func(s *state) { out = append(out, s.visits.list()...) })
		return out
	})
}

// list counts the visits.
func (vs *visits) list() []*openPanel {
	type key struct {
		port        int
		incarnation int64
	}
	var out []*openPanel
	for _, id := range vs.sandboxes() {
		panels := map[key]*openPanel{}
		for _, v := range vs.of(id) {
			p := panels[key{v.port, v.incarnation}]
			if p == nil {
				p = &openPanel{Sandbox: id, Port: v.port, Incarnation: v.incarnation}
				panels[key{v.port, v.incarnation}] = p
				out = append(out, p)
			}
			p.Requests++
			v.mu.Lock()
			if v.active {
				p.Streams++
			}
			v.mu.Unlock()
		}
	}
	slices.SortFunc(out, func(a, b *openPanel) int {
		return cmp.Or(cmp.Compare(a.Sandbox, b.Sandbox), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Incarnation, b.Incarnation))
	})
	return out
}

// cached is a record that the edge knows.
type cached struct {
	Sandbox    session.ID    `json:"sandbox"`
	State      session.State `json:"state"`
	Gen        int64         `json:"gen"`
	Age        float64       `json:"age_seconds"`
	Suspect    bool          `json:"suspect"`
	AnyVisitor bool          `json:"in_use"`
}

func adminCache(w http.ResponseWriter, r *http.Request) error {
	return adminGet(w, r, func() any {
		out := []cached{}
		eachState(func(s *state) { out = append(out, s.records.list()...) })
		return out
	})
}

// list gives what is known, by id.
func (r *records) list() []cached {
	r.mu.RLock()
	out := make([]cached, 0, len(r.known))
	for id, k := range r.known {
		out = append(out, cached{Sandbox: id, State: k.rec.State, Gen: k.rec.Gen, Age: time.Since(k.at).Seconds(), Suspect: k.suspect || k.epoch != r.epoch})
	}
	r.mu.RUnlock()
	for i := range out {
		out[i].AnyVisitor = r.visits.any(out[i].Sandbox)
	}
	slices.SortFunc(out, func(a, b cached) int { return cmp.Compare(a.Sandbox, b.Sandbox) })
	return out
}

// maxRevokeBody bounds the body of a revocation.
const maxRevokeBody = 4096

func adminRevoke(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodPost {
		return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Message: "only POST"}
	}
	var in struct {
		Sandbox string `json:"sandbox"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRevokeBody)).Decode(&in); err != nil {
		return caddy.APIError{HTTPStatus: http.StatusBadRequest, Err: err}
	}
	id, ok := session.ParseID(in.Sandbox)
	if !ok {
		return caddy.APIError{HTTPStatus: http.StatusBadRequest, Message: "want a sandbox's id"}
	}
	ended := 0
	eachState(func(s *state) { ended += s.visits.revoke(id) })
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(struct {
		Ended int `json:"ended"`
	}{ended})
}

// Interface guards.
var _ caddy.AdminRouter = Admin{}
