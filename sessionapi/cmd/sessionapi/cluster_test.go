package main_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cubeplexai/cubepod/internal/redisurl"
	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi/local"
	"github.com/cubeplexai/cubepod/sessionapi/runtimetest"
)

const clusterKey = "cp_cluster"

// cluster is several replicas of the program over one Redis and one Docker
// engine, or on one data directory.
type cluster struct {
	t     *testing.T
	redis *testutil.Redis
	rdb   redis.UniversalClient
	data  string // of all replicas; empty gives each its own
	flags []string
}

// newCluster skips t where no containers can be run.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	runtimetest.NeedDocker(t)
	if testing.Short() {
		testutil.Skip(t, "starts containers")
	}
	return clusterOn(t, "docker", "--network", "cubepodtest")
}

// newLocalCluster skips t where the local runtime cannot run.
func newLocalCluster(t *testing.T) *cluster {
	t.Helper()
	data, guest := dataDir(t), guestDir(t)
	rt, err := local.New(local.Options{Data: data, GuestDir: guest})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	if err := rt.Check(t.Context()); err != nil {
		testutil.Skip(t, err.Error())
	}
	c := clusterOn(t, "local")
	c.data = data
	return c
}

func clusterOn(t *testing.T, runtime string, flags ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, redis: testutil.StartRedis(t)}
	opts, err := redisurl.Parse(c.redis.URL)
	if err != nil {
		t.Fatal(err)
	}
	c.rdb = redis.NewUniversalClient(opts)
	t.Cleanup(func() { c.rdb.Close() })
	dir := dataDir(t)
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		write(t, path, content)
		return path
	}
	secret := "k base64:" + strings.Repeat("QUFB", 11) + "\n"
	c.flags = append(flags,
		"--runtime", runtime, "--redis", c.redis.URL, "--guest-dir", guestDir(t),
		"--api-keys", file("api", fmt.Sprintf("tests sha256:%x\n", sha256.Sum256([]byte(clusterKey)))),
		"--templates", file("templates", "base: {image: '"+runtimetest.Image+"', memory: 512MiB}\n"),
		"--master-key", file("master", secret), "--tunnel-key", file("tunnel", secret), "--panel-keys", file("panel", secret),
	)
	return c
}

// replica starts one more.
func (c *cluster) replica(flags ...string) *server {
	c.t.Helper()
	data := c.data
	if data == "" {
		data = dataDir(c.t)
	}
	return start(c.t, data, append(flags, c.flags...)...)
}

// guestDir makes a guest directory with the real programs, or gives the one
// that the environment names.
func guestDir(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("CUBEPOD_TEST_GUEST_DIR"); dir != "" {
		return dir
	}
	dir := t.TempDir()
	for name, pkg := range map[string]string{"podd": "../../../podd", "podd-init": "../../../podd/init"} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "guest", name), pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			testutil.Skip(t, name+" cannot be built here: "+string(out))
		}
	}
	return dir
}

// reply is what came back.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) String() string { return fmt.Sprintf("%d %s", r.status, r.body) }

// field gives a field of a JSON object.
func (r reply) field(name string) string {
	var m map[string]any
	_ = json.Unmarshal([]byte(r.body), &m)
	return fmt.Sprint(m[name])
}

func (s *server) try(ctx context.Context, method, path, body string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("X-API-Key", cmp.Or(s.key, clusterKey))
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(data)}, err
}

func (s *server) want(status int, method, path, body string) reply {
	s.t.Helper()
	r, err := s.try(s.t.Context(), method, path, body)
	if err != nil || r.status != status {
		s.t.Fatalf("%s %s: got %v, %v, want %d\n%s", method, path, r, err, status, s.log)
	}
	return r
}

func (s *server) create(extra string) session.ID {
	s.t.Helper()
	r := s.want(201, "POST", "/sandboxes", `{"templateID":"base","timeout":600`+extra+`}`)
	id, ok := session.ParseID(r.field("sandboxID"))
	if !ok {
		s.t.Fatalf("no id: %v", r)
	}
	return id
}

func box(id session.ID, more string) string { return "/sandboxes/" + string(id) + more }

// state gives where the record says the sandbox stands, "" when there is none.
func (c *cluster) state(id session.ID) session.State {
	doc, err := c.rdb.HGet(context.Background(), session.RecordKey(id), session.DocField).Result()
	if errors.Is(err, redis.Nil) {
		return ""
	}
	rec, derr := session.Decode([]byte(doc))
	if err := errors.Join(err, derr); err != nil {
		c.t.Error(err)
		return ""
	}
	return rec.State
}

// objects counts the containers of a sandbox, those of them that run, and its
// volumes.
func objects(t *testing.T, id session.ID) (containers, running, volumes int) {
	t.Helper()
	count := func(args ...string) int {
		out, err := exec.Command("docker", args...).Output()
		if err != nil {
			t.Errorf("docker %v: %v", args, err)
		}
		return len(strings.Fields(string(out)))
	}
	label := "label=cubepod.sandbox=" + string(id)
	return count("ps", "-aq", "--filter", label), count("ps", "-q", "--filter", label), count("volume", "ls", "-q", "--filter", label)
}

func docker(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("docker", args...).CombinedOutput(); err != nil {
		t.Fatalf("docker %v: %v: %s", args, err, out)
	}
}
