package caddymodule_test

import (
	"bufio"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/keyfile"
	"github.com/cubeplexai/cubepod/internal/paneltoken"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/internal/redisurl"
	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"

	_ "github.com/cubeplexai/cubepod/caddymodule"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Caddy's own, once per process.
		goleak.IgnoreTopFunction("github.com/caddyserver/certmagic.(*Cache).maintainAssets"),
		goleak.IgnoreAnyFunction("github.com/caddyserver/certmagic.keepLockfileFresh"),
		goleak.IgnoreTopFunction("github.com/DeRuina/timberjack.(*Logger).millRun"),
		goleak.IgnoreAnyFunction("github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy.(*Upstream).fillDynamicHost.func1.1"),
	)
}

// edge is our Caddy, in this process, with a real Redis and one sandbox whose
// ports are real servers behind a daemon that speaks podd's tunnel.
type edge struct {
	t       testing.TB
	url     string // of the panels' site
	redis   *testutil.Redis
	rdb     redis.UniversalClient
	signer  *paneltoken.Signer
	tunnel  keyfile.Keys
	dir     string
	logfile string
	port    int
	options edgeOptions

	podd *fakePodd
	rec  *session.Record
}

type edgeOptions struct {
	site      string // inside the cubepod_panel block
	global    string // inside the cubepod option
	format    string // of the log
	auto      string // auto_https; default off
	quiet     bool   // no access log, and nothing below ERROR
	after     string // more sites
	redirects int    // port that redirects to HTTPS
	caddy     string // among Caddy's global options
	host      string // of the site; default localhost
	tls       bool   // HTTPS, with HTTP/2 and HTTP/3
	extra     string // behind cubepod_panel
	keys      string // file of the panel keys; default the edge's own
}

// startEdge starts everything; backend listens on the sandbox's port 3000.
func startEdge(t testing.TB, backend http.Handler, opts edgeOptions) *edge {
	t.Helper()
	dir, err := os.MkdirTemp("", "edge") // short: it holds sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	e := &edge{t: t, dir: dir, logfile: filepath.Join(dir, "log"), redis: testutil.StartRedis(t), port: freePort(t), options: opts}
	e.url = fmt.Sprintf("http://localhost:%d", e.port)
	if opts.tls {
		e.url = fmt.Sprintf("https://localhost:%d", e.port)
		e.certificate()
	}
	o, err := redisurl.Parse(e.redis.URL)
	if err != nil {
		t.Fatal(err)
	}
	e.rdb = redis.NewUniversalClient(o)
	t.Cleanup(func() { e.rdb.Close() })
	panel := e.keys("panel")
	if e.signer, err = paneltoken.NewSigner(panel); err != nil {
		t.Fatal(err)
	}
	e.tunnel = e.keys("tunnel")
	e.podd = startPodd(t, e)
	e.rec = &session.Record{ID: session.NewID(), State: session.Running, Gen: 1, Incarnation: 1, TunnelKey: e.tunnel.Signing().ID, Ports: map[int]session.Port{3000: {}}}
	e.podd.serve(e.rec)
	if backend != nil {
		e.podd.listen(3000, backend)
	}
	e.write(e.rec)
	e.load("")
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// load loads the configuration, again to reload it.
func (e *edge) load(comment string) {
	e.t.Helper()
	level, access := "DEBUG", "log"
	if e.options.quiet {
		level, access = "ERROR", ""
	}
	scheme, tls, global := "http", "", e.options.caddy
	if e.options.tls {
		global += fmt.Sprintf("\nhttps_port %d", e.port)
		scheme, tls = "https", fmt.Sprintf("tls %[1]s/cert.pem %[1]s/key.pem", e.dir)
	}
	file := fmt.Sprintf(`{
	admin off
	%[8]s
	persist_config off
	auto_https %[12]s
	default_bind 127.0.0.1
	storage file_system %[1]s/caddy
	log default {
		output file %[1]s/log
		level %[14]s
		%[13]s
	}
	cubepod {
		redis %[2]s
		panel_keys %[17]s
		tunnel_key %[1]s/tunnel
		local_sockets %[1]s/sockets
		%[3]s
	}
}
%[9]s://%[10]s:%[4]d {
	%[11]s
	%[15]s
	cubepod_panel {
		%[5]s
	}
	%[6]s
	respond /reloaded "%[7]s"
}
%[16]s
`, e.dir, e.redis.URL, e.options.global, e.port, e.options.site, e.options.extra, comment,
		global, scheme, cmp.Or(e.options.host, "localhost"), tls,
		cmp.Or(e.options.auto, "off"), e.options.format, level, access, e.options.after, cmp.Or(e.options.keys, e.dir+"/panel"))
	js, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(file), nil)
	if err != nil {
		e.t.Fatal(err, warnings)
	}
	if err := caddy.Load(js, true); err != nil {
		e.t.Fatal(err)
	}
}

// keys makes a key file.
func (e *edge) keys(name string) keyfile.Keys {
	ks, err := keyfile.Ensure(filepath.Join(e.dir, name), name+"1")
	if err != nil {
		e.t.Fatal(err)
	}
	return ks
}

// certificate makes a certificate for the site.
func (e *edge) certificate() {
	e.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		e.t.Fatal(err)
	}
	host := cmp.Or(e.options.host, "localhost")
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), DNSNames: []string{host}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		e.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		e.t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(filepath.Join(e.dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			e.t.Fatal(err)
		}
	}
}

// write stores a record as the API does.
func (e *edge) write(rec *session.Record) {
	e.t.Helper()
	doc, err := rec.Encode()
	if err != nil {
		e.t.Fatal(err)
	}
	ctx := context.Background()
	if err := e.rdb.HSet(ctx, session.RecordKey(rec.ID), session.DocField, doc).Err(); err != nil {
		e.t.Fatal(err)
	}
	if err := e.rdb.Publish(ctx, session.ChangedChannel, string(rec.ID)).Err(); err != nil {
		e.t.Fatal(err)
	}
}

// update changes the sandbox's record.
func (e *edge) update(change func(*session.Record)) {
	change(e.rec)
	e.write(e.rec)
}

func (e *edge) claims(port int) paneltoken.Claims {
	now := time.Now()
	return paneltoken.Claims{Sandbox: string(e.rec.ID), Port: port, Gen: e.rec.Gen, IssuedAt: now, Expires: now.Add(time.Hour)}
}

func (e *edge) token(c paneltoken.Claims) string {
	e.t.Helper()
	tok, err := e.signer.Sign(c)
	if err != nil {
		e.t.Fatal(err)
	}
	return tok
}

// panel gives the URL of a panel, without a slash at its end.
func (e *edge) panel(port int) string { return e.url + "/panel/" + e.token(e.claims(port)) }

// get sends a request and gives the response and its body.
func (e *edge) get(url string, header ...string) (*http.Response, string) {
	return e.do(http.MethodGet, url, nil, header...)
}

// insecure is for clients of certificates that tests make.
var insecure = &tls.Config{InsecureSkipVerify: true}

var client = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true, TLSClientConfig: insecure},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func (e *edge) do(method, url string, body io.Reader, header ...string) (*http.Response, string) {
	e.t.Helper()
	r, err := http.NewRequest(method, url, body)
	if err != nil {
		e.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(r)
	if err != nil {
		e.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return resp, string(b)
}

// raw sends a request line as it is and gives the status line.
func (e *edge) raw(path string) string {
	e.t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", e.port))
	if err != nil {
		e.t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost:%d\r\nConnection: close\r\n\r\n", path, e.port)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		e.t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.Status
}

// fakePodd answers podd's tunnel for the ports of one sandbox.
type fakePodd struct {
	t   testing.TB
	dir string
	key []byte

	mu    sync.Mutex // guards the fields below
	ports map[int]string
	live  map[net.Conn]struct{}
}

func startPodd(t testing.TB, e *edge) *fakePodd {
	return &fakePodd{t: t, dir: filepath.Join(e.dir, "sockets"), key: e.tunnel.Signing().Secret, ports: map[int]string{}, live: map[net.Conn]struct{}{}}
}

// serve listens where rec says podd is.
func (p *fakePodd) serve(rec *session.Record) {
	p.t.Helper()
	rec.Endpoint = session.LocalEndpoint(rec.ID, rec.Incarnation)
	rel, _ := rec.Endpoint.Socket()
	path := filepath.Join(p.dir, rel)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		p.t.Fatal(err)
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		p.t.Fatal(err)
	}
	token := poddapi.Token(p.key, poddapi.Tunnel, string(rec.ID), rec.Incarnation)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.tunnel(w, r, token) })}
	var wg sync.WaitGroup
	wg.Go(func() { srv.Serve(ln) })
	p.t.Cleanup(func() {
		srv.Close()
		p.mu.Lock()
		for c := range p.live {
			c.Close()
		}
		p.mu.Unlock()
		wg.Wait()
	})
}

// listen puts h behind a guest port.
func (p *fakePodd) listen(port int, h http.Handler) {
	srv := httptest.NewServer(h)
	p.t.Cleanup(srv.Close)
	p.t.Cleanup(srv.CloseClientConnections)
	p.mu.Lock()
	p.ports[port] = srv.Listener.Addr().String()
	p.mu.Unlock()
}

func (p *fakePodd) tunnel(w http.ResponseWriter, r *http.Request, token string) {
	if r.Header.Get("Authorization") != "Bearer "+token {
		apierror.Write(w, apierror.New(apierror.Unauthorized, "", "wrong token"))
		return
	}
	var port int
	fmt.Sscanf(r.URL.Path, "/v1/ports/%d/tunnel", &port)
	p.mu.Lock()
	addr, ok := p.ports[port]
	p.mu.Unlock()
	if !ok {
		apierror.Write(w, apierror.New(apierror.BadGateway, "port_closed", "nobody listens"))
		return
	}
	up, err := net.Dial("tcp", addr)
	if err != nil {
		apierror.Write(w, apierror.New(apierror.BadGateway, "port_closed", "nobody listens"))
		return
	}
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		up.Close()
		return
	}
	p.mu.Lock()
	p.live[conn], p.live[up] = struct{}{}, struct{}{}
	p.mu.Unlock()
	io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
	both := make(chan struct{}, 2)
	splice := func(dst, src net.Conn) {
		io.Copy(dst, src)
		if hc, ok := dst.(interface{ CloseWrite() error }); ok {
			hc.CloseWrite()
		}
		both <- struct{}{}
	}
	go splice(up, conn)
	go splice(conn, up)
	<-both
	<-both
	conn.Close()
	up.Close()
	p.mu.Lock()
	delete(p.live, conn)
	delete(p.live, up)
	p.mu.Unlock()
}

func freePort(t testing.TB) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

// forged takes a token's signature or algorithm apart.
func forged(token, header string) string {
	parts := strings.Split(token, ".")
	parts[0] = base64.RawURLEncoding.EncodeToString([]byte(header))
	return strings.Join(parts, ".")
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

// open counts the tunnels that are open.
func (p *fakePodd) open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.live) / 2
}
