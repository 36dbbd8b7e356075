package server

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/cubeplexai/cubepod/internal/apierror"
)

// handler is one call. What it returns becomes the answer, unless it has
// written one.
type handler func(http.ResponseWriter, *http.Request) error

// methods are the calls of one path.
type methods map[string]handler

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	route := func(path string, need access, ms methods) {
		mux.Handle(path, s.guard(need, ms.dispatch))
	}
	route("/health", open, methods{"GET": s.health})
	route("/metrics", full, methods{"GET": s.metrics})

	route("/v1/commands", full, methods{"GET": s.listCommands})
	route("/v1/commands/run", full, methods{"POST": s.run})
	route("/v1/commands/{id}/status", full, methods{"GET": s.status})
	route("/v1/commands/{id}/logs", full, methods{"GET": s.logs})
	route("/v1/commands/{id}/kill", full, methods{"POST": s.kill})
	route("/v1/commands/{id}/signal", full, methods{"POST": s.signal})
	route("/v1/commands/{id}/stdin", full, methods{"POST": s.stdin})
	route("/v1/commands/{id}/resize", full, methods{"POST": s.resize})

	route("/v1/files", full, methods{"GET": s.getFile, "PUT": s.putFile, "DELETE": s.deleteFile})
	route("/v1/files/list", full, methods{"GET": s.listFiles})
	route("/v1/files/stat", full, methods{"GET": s.statFile})
	route("/v1/files/mkdir", full, methods{"POST": s.mkdir})
	route("/v1/files/move", full, methods{"POST": s.moveFile})
	route("/v1/archive", full, methods{"GET": s.getArchive, "PUT": s.putArchive})

	route("/v1/ports", full, methods{"GET": s.listPorts})
	route("/v1/ports/{port}/tunnel", anyToken, methods{"GET": s.tunnel})

	route("/v1/env", full, methods{"PUT": s.putEnv})
	route("/v1/lifecycle/prepare-stop", full, methods{"POST": s.prepareStop})
	route("/v1/lifecycle/resume", full, methods{"POST": s.resume})
	route("/", full, nil)
	return mux
}

// guard lets through to h who may call it. A request with an Origin comes from
// a web page, and a page in the sandbox's browser must get nothing.
func (s *Server) guard(need access, h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := s.o.Tokens.check(r, need)
		if _, page := r.Header["Origin"]; page {
			err = apierror.New(apierror.Forbidden, "origin_refused", "podd answers no web page")
		}
		if err == nil {
			if err = h(w, r); err == nil {
				return
			}
		} else {
			s.refused.Add(1)
		}
		e := apierror.Write(w, err)
		if e.Err != nil && e.Kind != apierror.ClientGone && e.Status() >= 500 {
			s.o.Log.Printf("%s %s: %v", r.Method, r.URL.Path, err)
		}
	})
}

func (ms methods) dispatch(w http.ResponseWriter, r *http.Request) error {
	if ms == nil {
		return apierror.New(apierror.NotFound, "not_found", "podd has no call %s", r.URL.Path)
	}
	h, ok := ms[r.Method]
	if !ok && r.Method == http.MethodHead {
		h, ok = ms[http.MethodGet]
	}
	if ok {
		return h(w, r)
	}
	allowed := make([]string, 0, len(ms))
	for m := range ms {
		allowed = append(allowed, m)
	}
	slices.Sort(allowed)
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	return apierror.New(apierror.MethodNotAllowed, "", "%s answers %s only", r.URL.Path, strings.Join(allowed, ", "))
}

// reply sends v as one buffered JSON answer.
func (s *Server) reply(w http.ResponseWriter, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	h := w.Header()
	h["Content-Type"] = []string{"application/json"}
	h["Content-Length"] = []string{strconv.Itoa(len(data) + 1)}
	data = append(data, '\n')
	if len(data) > 16<<10 { // less fits into the connection's buffers
		s.patientWriter(w).Write(data)
		return nil
	}
	w.Write(data) // a client that left is no fault of ours
	return nil
}
