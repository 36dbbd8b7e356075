package sessionapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/jsonbody"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/sessionapi"
)

// fakeRuntime is a Runtime in memory. Each running sandbox has a podd of its
// own on a Unix socket, which runs commands with a real shell on this machine.
type fakeRuntime struct {
	dir string // podd's sockets
	// ctl is the file that stands for the guest's desktop supervisor.
	ctl string

	starts, stops, deletes, prepares atomic.Int64
	stopCalls                        atomic.Int64    // also those that found nothing
	waiting                          atomic.Int64    // starts that wait for the gate
	news                             chan session.ID // for those who watch

	mu       sync.Mutex // guards the fields below
	boxes    map[session.ID]*fakeBox
	startErr error
	stopErr  error
	gate     chan struct{} // while not nil, Start waits for it to be closed
}

// fakeBox is one sandbox.
type fakeBox struct {
	incarnation int64
	deployment  string
	podd        *fakePodd // nil while it does not run
	removed     bool      // only the files are left
	going       bool      // podd is gone, and the rest is not yet
}

func newFakeRuntime(t *testing.T) *fakeRuntime {
	t.Helper()
	// Not t.TempDir: a socket's path has 107 bytes at most.
	dir, err := os.MkdirTemp("", "podd")
	if err != nil {
		t.Fatal(err)
	}
	rt := &fakeRuntime{dir: dir, ctl: filepath.Join(dir, "ctl"), news: make(chan session.ID), boxes: map[session.ID]*fakeBox{}}
	t.Cleanup(func() {
		for id := range rt.boxes {
			rt.kill(id)
		}
		os.RemoveAll(dir)
	})
	return rt
}

func (rt *fakeRuntime) Name() string { return "fake" }

func (rt *fakeRuntime) Start(ctx context.Context, spec sessionapi.Spec) (sessionapi.Handle, error) {
	if ctx.Err() != nil {
		return sessionapi.Handle{}, context.Cause(ctx)
	}
	rt.mu.Lock()
	gate := rt.gate
	rt.mu.Unlock()
	if gate != nil {
		rt.waiting.Add(1)
		defer rt.waiting.Add(-1)
		select {
		case <-gate:
		case <-ctx.Done():
			return sessionapi.Handle{}, ctx.Err()
		}
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.startErr != nil {
		return sessionapi.Handle{}, rt.startErr
	}
	box := rt.boxes[spec.ID]
	if box == nil {
		box = &fakeBox{}
		rt.boxes[spec.ID] = box
	}
	if box.podd != nil && box.incarnation == spec.Incarnation {
		return rt.handle(spec.ID, box), nil
	}
	box.end()
	rt.starts.Add(1)
	box.incarnation, box.deployment, box.removed, box.going = spec.Incarnation, spec.Deployment, false, false
	ep := session.LocalEndpoint(spec.ID, spec.Incarnation)
	rel, _ := ep.Socket()
	var err error
	box.podd, err = startFakePodd(rt, filepath.Join(rt.dir, rel), spec.FullToken)
	return rt.handle(spec.ID, box), err
}

func (rt *fakeRuntime) handle(id session.ID, box *fakeBox) sessionapi.Handle {
	return sessionapi.Handle{Endpoint: session.LocalEndpoint(id, box.incarnation), Ref: "fake/" + string(id)}
}

func (rt *fakeRuntime) Inspect(_ context.Context, id session.ID) (sessionapi.Status, error) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	box, ok := rt.boxes[id]
	if !ok {
		return sessionapi.Status{}, apierror.New(apierror.NotFound, "", "nothing of %s", id)
	}
	if box.removed {
		return sessionapi.Status{Removed: true}, nil
	}
	st := sessionapi.Status{Running: box.podd != nil || box.going, Incarnation: box.incarnation}
	if st.Running {
		st.Handle = rt.handle(id, box)
	}
	return st, nil
}

func (rt *fakeRuntime) Stop(_ context.Context, id session.ID) error {
	rt.stopCalls.Add(1)
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.stopErr != nil {
		return rt.stopErr
	}
	if box := rt.boxes[id]; box != nil && box.podd != nil {
		rt.stops.Add(1)
		box.end()
	}
	return nil
}

func (rt *fakeRuntime) Delete(_ context.Context, id session.ID) error {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if box := rt.boxes[id]; box != nil {
		rt.deletes.Add(1)
		box.end()
		delete(rt.boxes, id)
	}
	return nil
}

func (rt *fakeRuntime) List(_ context.Context, deployment string) iter.Seq2[session.ID, error] {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	var ids []session.ID
	for id, box := range rt.boxes {
		if box.deployment == deployment {
			ids = append(ids, id)
		}
	}
	return func(yield func(session.ID, error) bool) {
		for _, id := range ids {
			if !yield(id, nil) {
				return
			}
		}
	}
}

func (rt *fakeRuntime) SocketDir() string { return rt.dir }

// Watch implements sessionapi.Watcher.
func (rt *fakeRuntime) Watch(ctx context.Context, changed func(session.ID)) {
	for {
		select {
		case id := <-rt.news:
			changed(id)
		case <-ctx.Done():
			return
		}
	}
}

// remove takes away what runs a sandbox and keeps its files.
func (rt *fakeRuntime) remove(id session.ID) {
	rt.kill(id)
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.boxes[id].removed = true
}

// kill ends a sandbox's processes behind the API's back.
func (rt *fakeRuntime) kill(id session.ID) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.boxes[id].end()
}

// linger makes the runtime say that a sandbox runs, whose podd is gone.
func (rt *fakeRuntime) linger(id session.ID, going bool) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.boxes[id].end()
	rt.boxes[id].going = going
}

// lose makes the runtime forget a sandbox.
func (rt *fakeRuntime) lose(id session.ID) {
	rt.kill(id)
	rt.mu.Lock()
	defer rt.mu.Unlock()
	delete(rt.boxes, id)
}

func (rt *fakeRuntime) fail(start, stop error) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.startErr, rt.stopErr = start, stop
}

// hold makes starts wait until the function it gives is called.
func (rt *fakeRuntime) hold() (release func()) {
	gate := make(chan struct{})
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.gate = gate
	return sync.OnceFunc(func() {
		rt.mu.Lock()
		defer rt.mu.Unlock()
		rt.gate = nil
		close(gate)
	})
}

func (rt *fakeRuntime) podd(t *testing.T, id session.ID) *fakePodd {
	t.Helper()
	rt.mu.Lock()
	defer rt.mu.Unlock()
	box := rt.boxes[id]
	if box == nil || box.podd == nil {
		t.Fatalf("sandbox %s does not run", id)
	}
	return box.podd
}

func (rt *fakeRuntime) count() (boxes, running int) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	for _, b := range rt.boxes {
		if b.podd != nil {
			running++
		}
	}
	return len(rt.boxes), running
}

// installCtl makes the desktop supervisor a shell script.
func (rt *fakeRuntime) installCtl(t *testing.T, script string) {
	t.Helper()
	if err := os.WriteFile(rt.ctl, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func (b *fakeBox) end() {
	if b.podd != nil {
		b.podd.server.Close()
		b.podd = nil
	}
}

// fakePodd has the calls of podd that the API needs itself, and some that it
// hands on.
type fakePodd struct {
	rt     *fakeRuntime
	server *http.Server
	token  string
	// left gets a value when the client of a followed log goes away.
	left chan struct{}
	// stopped makes it take calls and answer none, as a process that got SIGSTOP.
	stopped atomic.Bool

	mu     sync.Mutex // guards the fields below
	envs   map[string]string
	last   http.Header // of the last call
	runs   []poddapi.RunRequest
	upload []byte

	following bool // a log was

	// When set, calls that run something wait until podd prepares for a stop,
	// which waits until one of them was refused for that.
	stopping, refused chan struct{}
}

func startFakePodd(rt *fakeRuntime, socket, token string) (*fakePodd, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return nil, err
	}
	os.Remove(socket)
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	p := &fakePodd{rt: rt, token: token, left: make(chan struct{}, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/commands/run", p.run)
	mux.HandleFunc("GET /v1/commands/{id}/logs", p.follow)
	mux.HandleFunc("GET /v1/commands/{id}/status", p.echo)
	mux.HandleFunc("PUT /v1/files", p.put)
	mux.HandleFunc("GET /v1/files", p.missing)
	mux.HandleFunc("PUT /v1/env", p.env)
	mux.HandleFunc("POST /v1/lifecycle/prepare-stop", p.prepare)
	mux.HandleFunc("/", p.echo)
	p.server = &http.Server{Handler: p.auth(mux)}
	go p.server.Serve(l) // ends when the box does
	return p, nil
}

func (p *fakePodd) auth(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.stopped.Load() {
			_, _ = io.Copy(io.Discard, r.Body) // or the server does not see its client leave
			<-r.Context().Done()
			return
		}
		if r.Header.Get("Authorization") != "Bearer "+p.token {
			apierror.Write(w, apierror.New(apierror.Unauthorized, "", "wrong token"))
			return
		}
		p.mu.Lock()
		p.last = r.Header.Clone()
		p.mu.Unlock()
		next.ServeHTTP(w, r)
	})
}

// run runs a command as podd would, but on this machine and with the test's
// script for the ctl.
func (p *fakePodd) run(w http.ResponseWriter, r *http.Request) {
	var req poddapi.RunRequest
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = jsonbody.Decode(body, &req)
	}
	if err != nil {
		apierror.Write(w, apierror.New(apierror.Invalid, "invalid_body", "%v", err))
		return
	}
	p.mu.Lock()
	p.runs = append(p.runs, req)
	stopping, refused := p.stopping, p.refused
	p.mu.Unlock()
	if stopping != nil {
		<-stopping
		apierror.Write(w, apierror.New(apierror.Unavailable, "stopping", "podd is ending"))
		http.NewResponseController(w).Flush()
		close(refused)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if req.TimeoutMS > 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(req.TimeoutMS)*time.Millisecond)
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", strings.ReplaceAll(req.Command, poddapi.CtlPath, p.rt.ctl))
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	for k, v := range req.Envs {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second
	_ = cmd.Run()
	if cmd.ProcessState == nil {
		apierror.Write(w, errors.New("no shell"))
		return
	}
	code := cmd.ProcessState.ExitCode()
	out := poddapi.RunResponse{Status: poddapi.Status{ID: "proc-1", ExitCode: &code, TimedOut: ctx.Err() == context.DeadlineExceeded}, Output: stdout.String()}
	if req.Separate {
		so, se := stdout.String(), stderr.String()
		out.Stdout, out.Stderr = &so, &se
	}
	json.NewEncoder(w).Encode(out)
}

// follow sends one event and then nothing until the client leaves.
func (p *fakePodd) follow(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	io.WriteString(w, "event: output\ndata: first\n\n")
	http.NewResponseController(w).Flush()
	p.mu.Lock()
	p.following = true
	p.mu.Unlock()
	<-r.Context().Done()
	p.left <- struct{}{}
}

func (p *fakePodd) put(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		apierror.Write(w, err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upload = data
	json.NewEncoder(w).Encode(poddapi.Written{Path: r.URL.Query().Get("path"), Size: int64(len(data))})
}

func (p *fakePodd) missing(w http.ResponseWriter, r *http.Request) {
	apierror.Write(w, apierror.New(apierror.NotFound, "file_not_found", "there is no %s", r.URL.Query().Get("path")))
}

func (p *fakePodd) env(w http.ResponseWriter, r *http.Request) {
	var req poddapi.EnvRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		apierror.Write(w, err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.envs = req.Envs
	w.WriteHeader(http.StatusNoContent)
}

func (p *fakePodd) prepare(w http.ResponseWriter, _ *http.Request) {
	p.rt.prepares.Add(1)
	p.mu.Lock()
	stopping, refused := p.stopping, p.refused
	p.mu.Unlock()
	if stopping != nil {
		close(stopping)
		<-refused
	}
	json.NewEncoder(w).Encode(poddapi.Stopped{Status: "synced"})
}

// echo tells what arrived, and tries what a sandbox must not do to the API's
// origin.
func (p *fakePodd) echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("Set-Cookie", "a=b")
	json.NewEncoder(w).Encode(map[string]string{"method": r.Method, "uri": r.RequestURI, "host": r.Host})
}

func (p *fakePodd) lastRun() poddapi.RunRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs[len(p.runs)-1]
}
