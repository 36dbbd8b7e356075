package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/redis/go-redis/v9"

	"github.com/cubeplexai/cubepod/internal/keyfile"
	"github.com/cubeplexai/cubepod/internal/paneltoken"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/internal/session"
)

// directPort is reached at an address of its own; others through podd.
const (
	directPort = 3000
)

// rig is all that runs: Redis, a backend, podd, and the proxies under test.
type rig struct {
	dir     string
	stop    []func()
	rdb     *redis.Client
	backend string // address of the small answers
	echo    string // address of the WebSocket echo and the large body

	panelURL, tunnelURL, plainURL, haproxyURL string
	admins                                    map[string]string // of the proxies: admin address
	pids                                      map[string]int
	reload                                    func() error
}

func newRig() (*rig, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	r := &rig{dir: dir, admins: map[string]string{}, pids: map[string]int{}}
	for _, step := range []func() error{r.startRedis, r.startBackends, r.startProxies} {
		if err := step(); err != nil {
			r.close()
			return nil, err
		}
	}
	return r, nil
}

func (r *rig) close() {
	for i := len(r.stop) - 1; i >= 0; i-- {
		r.stop[i]()
	}
	os.RemoveAll(r.dir)
}

// spawn starts a program that ends with the rig.
func (r *rig) spawn(name string, args ...string) (int, error) {
	log, err := os.Create(filepath.Join(r.dir, filepath.Base(name)+strconv.Itoa(len(r.stop))+".log"))
	if err != nil {
		return 0, err
	}
	defer log.Close()
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "HOME="+r.dir, "XDG_DATA_HOME="+r.dir, "XDG_CONFIG_HOME="+r.dir)
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start %s: %w", name, err)
	}
	r.stop = append(r.stop, func() {
		cmd.Process.Kill() // nothing of it is kept
		cmd.Wait()
	})
	return cmd.Process.Pid, nil
}

func (r *rig) startRedis() error {
	socket := filepath.Join(r.dir, "redis.sock")
	if _, err := r.spawn("redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", r.dir); err != nil {
		return err
	}
	r.rdb = redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	r.stop = append(r.stop, func() { r.rdb.Close() })
	return poll("redis answers", func() bool { return r.rdb.Ping(context.Background()).Err() == nil })
}

// startBackends starts nginx for small answers, which costs next to nothing
// beside a proxy, and the rest in this process.
func (r *rig) startBackends() error {
	nginx := freeAddr()
	conf := filepath.Join(r.dir, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, `worker_processes 1; daemon off; pid %[1]s/nginx.pid; error_log /dev/null;
events { worker_connections 4096; }
http { access_log off; keepalive_requests 100000000; server { listen %[2]s; location / { return 200 '%[3]s'; } } }
`, r.dir, nginx, strings.Repeat("x", 1024)), 0o600); err != nil {
		return err
	}
	if _, err := r.spawn("nginx", "-c", conf); err != nil {
		return err
	}
	r.backend = nginx
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	r.echo = ln.Addr().String()
	srv := &http.Server{Handler: http.HandlerFunc(serveEcho)}
	go srv.Serve(ln) // ends with Close
	r.stop = append(r.stop, func() { srv.Close() })
	return poll("nginx answers", func() bool { return get("http://"+nginx) == nil })
}

// serveEcho echoes messages, and gives a large body.
func serveEcho(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/large") {
		w.Header().Set("Content-Length", strconv.Itoa(largeBody))
		block := make([]byte, 1<<20)
		for range largeBody >> 20 {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
		return
	}
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	defer c.CloseNow()
	for {
		kind, b, err := c.Read(context.Background())
		if err != nil || c.Write(context.Background(), kind, b) != nil {
			return
		}
	}
}

// keys makes a key file.
func (r *rig) keys(name string) (string, keyfile.Keys, error) {
	path := filepath.Join(r.dir, name)
	ks, err := keyfile.Ensure(path, "k1")
	return path, ks, err
}

// sandbox writes a running sandbox whose ports are the given addresses; those
// of tunnelled ports podd finds on the loopback.
func (r *rig) sandbox(ports map[int]session.Port, tunnel keyfile.Keys) (*session.Record, error) {
	rec := &session.Record{ID: session.NewID(), State: session.Running, Gen: 1, Incarnation: 1, TunnelKey: "k1", Ports: ports}
	rec.Endpoint = session.LocalEndpoint(rec.ID, 1)
	rel, _ := rec.Endpoint.Socket()
	socket := filepath.Join(r.dir, "sockets", rel)
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return nil, err
	}
	tokens := filepath.Join(r.dir, "token")
	content := "unused-full-token\n" + poddapi.Token(tunnel.Signing().Secret, poddapi.Tunnel, string(rec.ID), 1) + "\n"
	if err := os.WriteFile(tokens, []byte(content), 0o600); err != nil {
		return nil, err
	}
	podd := filepath.Join(r.dir, "podd")
	if err := build(podd, "./podd"); err != nil {
		return nil, err
	}
	if _, err := r.spawn(podd, "--addr", "unix:"+socket, "--token-file", tokens, "--state-dir", filepath.Join(r.dir, "state"), "--workdir", r.dir); err != nil {
		return nil, err
	}
	if err := poll("podd listens", func() bool { _, err := os.Stat(socket); return err == nil }); err != nil {
		return nil, err
	}
	doc, err := rec.Encode()
	if err != nil {
		return nil, err
	}
	return rec, r.rdb.HSet(context.Background(), session.RecordKey(rec.ID), session.DocField, doc).Err()
}

// startProxies starts the same binary twice, once with panels and once with
// plain proxying, and HAProxy.
func (r *rig) startProxies() error {
	panelFile, panelKeys, err := r.keys("panel")
	if err != nil {
		return err
	}
	tunnelFile, tunnelKeys, err := r.keys("tunnel")
	if err != nil {
		return err
	}
	addr := netip.MustParseAddrPort
	_, echoPort, _ := net.SplitHostPort(r.echo)
	_, backendPort, _ := net.SplitHostPort(r.backend)
	tunnelEcho, _ := strconv.Atoi(echoPort)
	tunnelBackend, _ := strconv.Atoi(backendPort)
	rec, err := r.sandbox(map[int]session.Port{directPort: {Address: addr(r.backend)}, directPort + 10: {Address: addr(r.echo)}, tunnelEcho: {}, tunnelBackend: {}}, tunnelKeys)
	if err != nil {
		return err
	}
	signer, err := paneltoken.NewSigner(panelKeys)
	if err != nil {
		return err
	}
	token := func(port int) string {
		now := time.Now()
		tok, err2 := signer.Sign(paneltoken.Claims{Sandbox: string(rec.ID), Port: port, Gen: 1, IssuedAt: now, Expires: now.Add(24 * time.Hour)})
		err = errors.Join(err, err2)
		return tok
	}
	caddy := filepath.Join(r.dir, "caddy")
	if err := build(caddy, "./caddymodule/caddy"); err != nil {
		return err
	}
	panelSite, plainSite, echoSite := freeAddr(), freeAddr(), freeAddr()
	panelAdmin, plainAdmin := freeAddr(), freeAddr()
	file := filepath.Join(r.dir, "panel.caddyfile")
	config := func(comment string) []byte {
		return fmt.Appendf(nil, `{
	admin %[1]s
	auto_https off
	persist_config off
	log { 
		level ERROR
	}
	cubepod {
		redis unix://%[2]s/redis.sock
		panel_keys %[3]s
		tunnel_key %[4]s
		local_sockets %[2]s/sockets
		allow_upstream 127.0.0.0/8
		max_per_sandbox -1
	}
}
http://%[5]s {
	cubepod_panel
	respond "%[6]s"
}
`, panelAdmin, r.dir, panelFile, tunnelFile, panelSite, comment)
	}
	plain := fmt.Appendf(nil, `{
	admin %[1]s
	auto_https off
	persist_config off
	log { 
		level ERROR
	}
}
http://%[2]s {
	handle_path /panel/* {
		uri path_regexp ^/[^/]+ ""
		reverse_proxy %[3]s
	}
}
http://%[4]s {
	handle_path /panel/* {
		uri path_regexp ^/[^/]+ ""
		reverse_proxy %[5]s {
			stream_buffer_size 4096
		}
	}
}
`, plainAdmin, plainSite, r.backend, echoSite, r.echo)
	if err := errors.Join(os.WriteFile(file, config("first"), 0o600), os.WriteFile(filepath.Join(r.dir, "plain.caddyfile"), plain, 0o600)); err != nil {
		return err
	}
	for name, f := range map[string]string{"panel": file, "plain": filepath.Join(r.dir, "plain.caddyfile")} {
		if r.pids[name], err = r.spawn(caddy, "run", "--config", f, "--adapter", "caddyfile"); err != nil {
			return err
		}
	}
	r.admins["panel"], r.admins["plain"] = panelAdmin, plainAdmin
	direct := token(directPort)
	r.panelURL = "http://" + panelSite + "/panel/" + direct + "/"
	r.plainURL = "http://" + plainSite + "/panel/" + direct + "/"
	r.tunnelURL = "http://" + panelSite + "/panel/" + token(tunnelBackend) + "/"
	echo = map[string]string{
		"plain":  "http://" + echoSite + "/panel/" + direct + "/",
		"panel":  "http://" + panelSite + "/panel/" + token(directPort+10) + "/",
		"tunnel": "http://" + panelSite + "/panel/" + token(tunnelEcho) + "/",
		"direct": "http://" + r.echo + "/",
	}
	r.reload = func() error {
		if err := os.WriteFile(file, config("second"), 0o600); err != nil {
			return err
		}
		out, err := exec.Command(caddy, "reload", "--config", file, "--adapter", "caddyfile", "--address", panelAdmin).CombinedOutput()
		if err != nil {
			return fmt.Errorf("reload: %w: %s", err, out)
		}
		return nil
	}
	for _, u := range []string{r.panelURL, r.plainURL, r.tunnelURL} {
		if err2 := poll("a proxy answers", func() bool { return get(u) == nil }); err2 != nil {
			return errors.Join(err2, get(u))
		}
	}
	return errors.Join(err, r.startHAProxy(direct, panelKeys))
}

// echo are the addresses of the WebSocket echo, by way.
var echo map[string]string

// startHAProxy has HAProxy do a part of the panel's job: check the signature,
// and find the sandbox in a map. It takes the token from the path.
func (r *rig) startHAProxy(token string, ks keyfile.Keys) error {
	if _, err := exec.LookPath("haproxy"); err != nil {
		return nil
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		return err
	}
	_, sid, _ := strings.Cut(string(payload), `"sid":"`)
	secret := filepath.Join(r.dir, "haproxy.map")
	if err := os.WriteFile(secret, []byte(sid[:20]+" "+r.backend+"\n"), 0o600); err != nil {
		return err
	}
	addr := freeAddr()
	conf := filepath.Join(r.dir, "haproxy.cfg")
	// HAProxy takes a secret as text: the benchmark's key is checked by its
	// base64 form there, with a token made for that.
	text := base64.StdEncoding.EncodeToString(ks.Signing().Secret)
	signer, err := paneltoken.NewSigner(keyfile.Keys{{ID: "k1", Secret: []byte(text)}})
	if err != nil {
		return err
	}
	now := time.Now()
	tok, err := signer.Sign(paneltoken.Claims{Sandbox: sid[:20], Port: directPort, Gen: 1, IssuedAt: now, Expires: now.Add(24 * time.Hour)})
	if err != nil {
		return err
	}
	if err := os.WriteFile(conf, fmt.Appendf(nil, `global
	nbthread 1
defaults
	mode http
	timeout connect 5s
	timeout client 1m
	timeout server 1m
frontend f
	bind %s
	http-request set-var(txn.tok) path,field(3,/)
	http-request deny unless { var(txn.tok),jwt_verify("HS256","%s") 1 }
	http-request set-var(txn.sid) var(txn.tok),jwt_payload_query('$.sid')
	http-request set-var(txn.exp) var(txn.tok),jwt_payload_query('$.exp','int')
	http-request deny if { var(txn.sid),map(%s) -m len 0 }
	http-request replace-path /panel/[^/]+(/.*) \1
	default_backend b
backend b
	server s %s
`, addr, text, secret, r.backend), 0o600); err != nil {
		return err
	}
	if _, err := r.spawn("haproxy", "-db", "-f", conf); err != nil {
		return err
	}
	r.haproxyURL = "http://" + addr + "/panel/" + tok + "/"
	if err := poll("haproxy answers", func() bool { return get(r.haproxyURL) == nil }); err != nil {
		fmt.Fprintln(os.Stderr, "haproxy is left out:", get(r.haproxyURL))
		r.haproxyURL = ""
	}
	return nil
}

func build(out, pkg string) error {
	cmd := exec.Command("go", "build", "-o", out, pkg)
	if b, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", pkg, err, b)
	}
	return nil
}

// freeAddr gives a free port of the loopback.
func freeAddr() string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

func get(url string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 || len(b) != 1024 {
		return fmt.Errorf("got %s, %d bytes", resp.Status, len(b))
	}
	return nil
}

func poll(what string, ok func() bool) error {
	end := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(end) {
			return fmt.Errorf("not within 20 s: %s", what)
		}
		<-tick.C
	}
	return nil
}
