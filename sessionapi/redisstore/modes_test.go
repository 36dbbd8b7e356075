package redisstore_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/redisurl"
	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi"
	"github.com/cubeplexai/cubepod/sessionapi/redisstore"
)

// process is a redis-server on a TCP port.
type process struct {
	port string
	cmd  *exec.Cmd
}

// launch starts a redis-server with a configuration file of these lines, on a
// free port unless they name one.
func launch(t *testing.T, flags []string, lines ...string) *process {
	t.Helper()
	program := testutil.NeedProgram(t, "redis-server")
	dir := t.TempDir()
	p := &process{port: freePort(t)}
	conf := "bind 127.0.0.1\ndir " + dir + "\nsave \"\"\n" + strings.Join(lines, "\n") + "\n"
	if !strings.Contains(conf, "tls-port") {
		conf += "port " + p.port + "\n"
	}
	conf = strings.ReplaceAll(conf, "PORT", p.port)
	file := filepath.Join(dir, "redis.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p.cmd = exec.Command(program, append([]string{file}, flags...)...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	testutil.Eventually(t, "redis-server listens", func() bool {
		c, err := net.Dial("tcp", p.address())
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return p
}

func (p *process) address() string { return "127.0.0.1:" + p.port }

func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		p.cmd.Process.Kill()
		p.cmd.Wait() // its exit status does not matter
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func connect(t *testing.T, url string, change func(*redis.UniversalOptions)) *redisstore.Store {
	t.Helper()
	opts, err := redisurl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(opts)
	}
	st := redisstore.New(opts)
	t.Cleanup(func() { st.Close() })
	return st
}

// useAll makes every call of a Store.
func useAll(t *testing.T, st *redisstore.Store) *session.Record {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	heard, done := make(chan session.ID, 100), make(chan struct{})
	go func() {
		defer close(done)
		st.Watch(ctx, func(id session.ID) { heard <- id })
	}()
	defer func() { cancel(); <-done }()

	rec, other := newRecord(), newRecord()
	lease := create(t, st, rec, time.Minute)
	create(t, st, other, time.Minute)
	e := get(t, st, rec.ID)
	e.Record.State = session.Running
	steps := map[string]error{
		"write":    st.Write(ctx, sessionapi.Write{Entry: e, Lease: &lease, LookAt: time.Now()}),
		"renew":    st.Renew(ctx, lease, time.Minute),
		"release":  st.Release(ctx, lease),
		"touch":    st.Touch(ctx, rec.ID, time.Now(), time.Minute),
		"postpone": st.Postpone(ctx, other.ID, time.Time{}),
		"ping":     st.Ping(ctx),
	}
	_, steps["lead"] = st.Lead(ctx, "me", time.Minute)
	_, steps["touched"] = st.Touched(ctx, rec.ID)
	_, steps["deployment"] = st.Deployment(ctx)
	_, steps["time"] = st.Time(ctx)
	lease, steps["acquire"] = st.Acquire(ctx, rec.ID, time.Minute)
	for name, err := range steps {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if places, err := st.List(ctx, sessionapi.Position{}, 10); err != nil || len(places) != 2 {
		t.Errorf("list: %v, %v", places, err)
	}
	if recs, err := st.GetMany(ctx, []session.ID{rec.ID, session.NewID(), other.ID}); err != nil || len(recs) != 2 {
		t.Errorf("get many: %v, %v", recs, err)
	}
	if due, err := st.Due(ctx, time.Now().Add(time.Minute), 10); err != nil || len(due) != 1 {
		t.Errorf("due: %v, %v", due, err)
	}
	if err := st.Forget(ctx, other.ID); err != nil {
		t.Errorf("forget: %v", err)
	}
	testutil.Eventually(t, "a write is heard of", func() bool {
		if err := st.Release(ctx, lease); err != nil {
			t.Fatal(err)
		}
		if lease, _ = st.Acquire(ctx, rec.ID, time.Minute); lease.ID == "" {
			return false
		}
		select {
		case id := <-heard:
			return id == rec.ID || id == other.ID
		default:
			return false
		}
	})
	return rec
}

func TestSentinelFailover(t *testing.T) {
	master := launch(t, nil)
	replica := launch(t, nil, "replicaof 127.0.0.1 "+master.port)
	sentinel := launch(t, []string{"--sentinel"},
		"sentinel monitor main 127.0.0.1 "+master.port+" 1",
		"sentinel down-after-milliseconds main 300",
		"sentinel failover-timeout main 2000")
	st := connect(t, "redis://"+sentinel.address()+"?master_name=main", nil)
	testutil.Eventually(t, "the sentinel knows both", func() bool {
		c := redis.NewSentinelClient(&redis.Options{Addr: sentinel.address()})
		defer c.Close()
		got, err := c.Replicas(t.Context(), "main").Result()
		return err == nil && len(got) == 1 && st.Ping(t.Context()) == nil
	})
	rec := useAll(t, st)
	raw := redis.NewClient(&redis.Options{Addr: replica.address()})
	defer raw.Close()
	testutil.Eventually(t, "the replica follows", func() bool {
		n, err := raw.Exists(t.Context(), session.RecordKey(rec.ID)).Result()
		return err == nil && n == 1
	})
	// From here on what was acknowledged is there.
	for n := range int64(200) {
		e := get(t, st, rec.ID)
		e.Record.Gen = n + 100
		if err := st.Write(t.Context(), sessionapi.Write{Entry: e, LookAt: time.Now()}); err != nil {
			t.Fatal(err)
		}
		if rev, err := raw.HGet(t.Context(), session.RecordKey(rec.ID), "rev").Int64(); err != nil || rev != e.Rev+1 {
			t.Fatalf("write %d was acknowledged, and the replica has revision %d, %v, want %d", n, rev, err, e.Rev+1)
		}
	}

	master.kill()
	refused := 0
	testutil.Eventually(t, "the replica has taken over", func() bool {
		_, err := st.Get(t.Context(), rec.ID)
		if err == nil {
			e := get(t, st, rec.ID)
			return st.Write(t.Context(), sessionapi.Write{Entry: e, LookAt: time.Now()}) == nil
		}
		if e := apierror.From(err); e.Code != "store_unavailable" || e.RetryAfter == 0 {
			t.Fatalf("in between: %v", err)
		}
		refused++
		return false
	})
	if gen := get(t, st, rec.ID).Record.Gen; gen != 299 {
		t.Errorf("the last revocation is lost: got %d", gen)
	}
	t.Logf("%d calls were told to come again", refused)
}

func TestCluster(t *testing.T) {
	cli := testutil.NeedProgram(t, "redis-cli")
	var addrs []string
	for range 3 {
		p := launch(t, nil, "cluster-enabled yes", "cluster-node-timeout 5000", "cluster-port "+freePort(t))
		addrs = append(addrs, p.address())
	}
	args := append([]string{"--cluster", "create"}, addrs...)
	if out, err := exec.CommandContext(t.Context(), cli, append(args, "--cluster-yes")...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	st := connect(t, "redis://"+addrs[0]+"?addr="+addrs[1]+"&addr="+addrs[2], nil)
	testutil.Eventually(t, "the cluster is up", func() bool { _, err := st.Deployment(t.Context()); return err == nil })
	useAll(t, st)
}

// TestTLSAndACL uses an account that may do nothing but what the Store needs.
func TestTLSAndACL(t *testing.T) {
	cert, key, roots := certificate(t)
	p := launch(t, nil, "port 0", "tls-port PORT", "tls-cert-file "+cert, "tls-key-file "+key, "tls-auth-clients no",
		"user default off",
		"user api on >secret resetchannels ~cubepod:* &cubepod:* -@all +@read +@write +@scripting +@pubsub +@connection +time")
	trust := func(o *redis.UniversalOptions) { o.TLSConfig.RootCAs = roots }
	useAll(t, connect(t, "rediss://api:secret@localhost:"+p.port, trust))

	for name, st := range map[string]*redisstore.Store{
		"no trust":       connect(t, "rediss://api:secret@localhost:"+p.port, nil),
		"wrong password": connect(t, "rediss://api:wrong@localhost:"+p.port, trust),
		"no TLS":         connect(t, "redis://api:secret@localhost:"+p.port, nil),
	} {
		if err := st.Ping(t.Context()); apierror.From(err).Code != "store_unavailable" {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func certificate(t *testing.T) (cert, key string, roots *x509.CertPool) {
	t.Helper()
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, priv.Public(), priv)
	if err != nil {
		t.Fatal(err)
	}
	privDER, err := x509.MarshalPKCS8PrivateKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	roots = x509.NewCertPool()
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots.AddCert(parsed)
	return file("cert.pem", "CERTIFICATE", der), file("key.pem", "PRIVATE KEY", privDER), roots
}
