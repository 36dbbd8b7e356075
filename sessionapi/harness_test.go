package sessionapi_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/cubeplexai/cubepod/internal/keyfile"
	"github.com/cubeplexai/cubepod/internal/redisurl"
	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi"
	"github.com/cubeplexai/cubepod/sessionapi/redisstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a Redis and a runtime that replicas of the API share.
type world struct {
	t     *testing.T
	redis *testutil.Redis
	rt    *fakeRuntime
	keys  sessionapi.Keys
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{t: t, redis: testutil.StartRedis(t), rt: newFakeRuntime(t), keys: sessionapi.Keys{
		Master: keyfile.Keys{{ID: "m1", Secret: bytes.Repeat([]byte("m"), 32)}},
		Tunnel: keyfile.Keys{{ID: "t1", Secret: bytes.Repeat([]byte("t"), 32)}},
		Panel:  keyfile.Keys{{ID: "p1", Secret: bytes.Repeat([]byte("p"), 32)}},
	}}
}

func (w *world) store() *redisstore.Store {
	w.t.Helper()
	opts, err := redisurl.Parse(w.redis.URL)
	if err != nil {
		w.t.Fatal(err)
	}
	st := redisstore.New(opts)
	w.t.Cleanup(func() { st.Close() })
	return st
}

// replica is one API server, called as one of its callers.
type replica struct {
	t        *testing.T
	url      string
	key      string
	service  *sessionapi.Service
	store    *redisstore.Store
	registry *prometheus.Registry
}

const (
	aliceKey = "cp_alice"
	bobKey   = "cp_bob"
	rootKey  = "cp_root"
)

// replica starts an API server over the world's Redis and runtime.
func (w *world) replica(opts sessionapi.Options) *replica {
	t := w.t
	t.Helper()
	reg := prometheus.NewRegistry()
	opts.Metrics = sessionapi.NewMetrics(reg)
	opts.SocketDir = w.rt.dir
	st := w.store()
	svc, err := sessionapi.New(w.rt, st, w.keys, &opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(svc.Close)
	var lines strings.Builder
	for name, key := range map[string]string{"alice": aliceKey, "bob": bobKey, "root": rootKey} {
		fmt.Fprintf(&lines, "%s sha256:%x", name, sha256.Sum256([]byte(key)))
		if name == "root" {
			lines.WriteString(" admin")
		}
		lines.WriteString("\n")
	}
	keys, err := sessionapi.ParseAPIKeys(strings.NewReader(lines.String()))
	if err != nil {
		t.Fatal(err)
	}
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "console") })
	server := httptest.NewServer(sessionapi.NewHandler(svc, keys, page))
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return &replica{t: t, url: server.URL, key: aliceKey, service: svc, store: st, registry: reg}
}

func (r *replica) as(key string) *replica {
	c := *r
	c.key = key
	return &c
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) String() string { return fmt.Sprintf("%d %s", a.status, a.body) }

// json reads the body into a map.
func (a answer) json(t *testing.T) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(a.body, &m); err != nil {
		t.Fatalf("%v: %s", err, a)
	}
	return m
}

// code is the body's "error".
func (a answer) code() string {
	var m struct{ Error string }
	_ = json.Unmarshal(a.body, &m)
	return m.Error
}

// call sends a request with a JSON body, unless it is empty.
func (r *replica) call(method, path, body string) answer {
	r.t.Helper()
	a, err := r.try(r.t.Context(), method, path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

// try is call for other goroutines than the test's own.
func (r *replica) try(ctx context.Context, method, path, body string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.key != "" {
		req.Header.Set("X-API-Key", r.key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	a := answer{resp.StatusCode, resp.Header, data}
	if err == nil {
		if verr := validate(req, body, a); verr != nil {
			r.t.Errorf("%s %s: not as openapi.yaml says: %v", method, path, verr)
		}
	}
	return a, err
}

// want calls and fails the test for another status.
func (r *replica) want(status int, method, path, body string) answer {
	r.t.Helper()
	a := r.call(method, path, body)
	if a.status != status {
		r.t.Fatalf("%s %s %s: got %s, want %d", method, path, body, a, status)
	}
	return a
}

// refused calls and fails the test for another status or code.
func (r *replica) refused(status int, code, method, path, body string) {
	r.t.Helper()
	if a := r.call(method, path, body); a.status != status || a.code() != code {
		r.t.Errorf("%s %s %s: got %s, want %d %s", method, path, body, a, status, code)
	}
}

// create makes a sandbox; extra is further JSON.
func (r *replica) create(extra string) session.ID {
	r.t.Helper()
	a := r.want(http.StatusCreated, "POST", "/sandboxes", `{"templateID":"desktop"`+extra+`}`)
	id, ok := session.ParseID(fmt.Sprint(a.json(r.t)["sandboxID"]))
	if !ok {
		r.t.Fatalf("no id: %s", a)
	}
	return id
}

// state is what the API says of a sandbox; "404" when there is none.
func (r *replica) state(id session.ID) string {
	r.t.Helper()
	a := r.call("GET", "/sandboxes/"+string(id), "")
	if a.status != http.StatusOK {
		return fmt.Sprint(a.status)
	}
	return fmt.Sprint(a.json(r.t)["state"])
}

func (r *replica) eventually(id session.ID, state string) {
	r.t.Helper()
	testutil.Eventually(r.t, "sandbox is "+state, func() bool { return r.state(id) == state })
}

// record reads the sandbox's record.
func (r *replica) record(id session.ID) *session.Record {
	r.t.Helper()
	e, err := r.store.Get(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return e.Record
}

func box(id session.ID, more ...string) string {
	return "/sandboxes/" + string(id) + strings.Join(more, "")
}

// shortLease is for tests in which a replica dies.
const shortLease = 400 * time.Millisecond
