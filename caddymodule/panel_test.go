package caddymodule_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/internal/paneltoken"
	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// echo answers with what it was asked.
func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Uri", r.RequestURI)
	w.Header().Set("X-Host", r.Host)
	for _, name := range []string{"Origin", "Cookie", "Authorization", "X-Forwarded-Prefix", "X-Forwarded-Host", "Referer", "Accept-Encoding", "Sec-Fetch-Mode"} {
		w.Header().Set("X-Got-"+name, r.Header.Get(name))
	}
	io.WriteString(w, "hello")
}

func TestPanelPassesBytesUnchanged(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(echo), edgeOptions{})
	base := strings.TrimPrefix(e.panel(3000), e.url)
	seen := make(chan string, 1)
	e.podd.listen(3000, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { seen <- r.RequestURI }))
	for _, rest := range []string{"/", "/a%2Fb", "//a//b", "/%25", "/x?", "/x?a=%2f&b=c+d", "/a|b^c", "/%e4%B8%ad", "/a;b=1", "/..%2f..", "/?x=/panel/y", "//evil.example/x"} {
		if status := e.raw(base + rest); !strings.HasPrefix(status, "200") {
			t.Fatalf("%s: got %s", rest, status)
		}
		select {
		case got := <-seen:
			if got != rest {
				t.Errorf("got %q, want %q", got, rest)
			}
		default:
			t.Errorf("%s never reached the guest", rest)
		}
	}
}

func TestPanelRequestHeaders(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(echo), edgeOptions{})
	for _, port := range []int{8080, 7681, 9222} {
		e.podd.listen(port, http.HandlerFunc(echo))
		e.rec.Ports[port] = session.Port{}
	}
	e.write(e.rec)
	header := []string{"Origin", "null", "Cookie", "a=b", "Authorization", "Bearer mine", "X-Forwarded-Prefix", "/evil", "Sec-Fetch-Mode", "cors"}
	host := strings.TrimPrefix(e.url, "http://")
	tests := []struct {
		port                 int
		host, origin, prefix string
		secFetch             string
	}{
		{3000, host, "null", "", "cors"},
		{8080, "127.0.0.1:8080", "http://127.0.0.1:8080", "", ""},
		{7681, "127.0.0.1:7681", "http://127.0.0.1:7681", "", ""},
		{9222, "127.0.0.1:9222", "http://127.0.0.1:9222", "*", ""},
	}
	for _, tt := range tests {
		panel := e.panel(tt.port)
		if tt.prefix == "*" {
			tt.prefix = strings.TrimPrefix(panel, e.url)
		}
		resp, _ := e.get(panel+"/x", append(header, "Referer", panel+"/page?q=1")...)
		want := map[string]string{
			"X-Uri": "/x", "X-Host": tt.host, "X-Got-Origin": tt.origin, "X-Got-Cookie": "a=b", "X-Got-Authorization": "Bearer mine",
			"X-Got-X-Forwarded-Prefix": tt.prefix, "X-Got-X-Forwarded-Host": host, "X-Got-Referer": e.url + "/page?q=1",
			"X-Got-Accept-Encoding": "", "X-Got-Sec-Fetch-Mode": tt.secFetch,
		}
		for name, v := range want {
			if got := resp.Header.Get(name); got != v {
				t.Errorf("port %d, %s: got %q, want %q", tt.port, name, got, v)
			}
		}
	}
}

func TestPanelResponseHeaders(t *testing.T) {
	guest := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Add("Set-Cookie", "a=1; Path=/; Domain=localhost")
		h.Add("Set-Cookie", "b=2; HttpOnly")
		for name, v := range map[string]string{"X-Frame-Options": "DENY", "Service-Worker-Allowed": "/", "Clear-Site-Data": `"*"`, "Strict-Transport-Security": "max-age=9",
			"Alt-Svc": `h3=":1"`, "Cross-Origin-Resource-Policy": "same-origin", "Access-Control-Allow-Origin": "http://x", "Access-Control-Allow-Credentials": "true",
			"Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'", "Cache-Control": "max-age=60", "Etag": `"e"`, "Referrer-Policy": "unsafe-url"} {
			h.Set(name, v)
		}
		h.Set("Location", "/login?next=%2F")
		w.WriteHeader(http.StatusFound)
	})
	e := startEdge(t, guest, edgeOptions{})
	panel := e.panel(3000)
	prefix := strings.TrimPrefix(panel, e.url)
	resp, _ := e.get(panel + "/")
	for name, want := range map[string][]string{
		"Set-Cookie":      {"a=1; Path=" + prefix + "/", "b=2; HttpOnly; Path=" + prefix + "/"},
		"X-Frame-Options": nil, "Service-Worker-Allowed": nil, "Clear-Site-Data": nil, "Strict-Transport-Security": nil, "Alt-Svc": nil,
		"Cross-Origin-Resource-Policy": {"cross-origin"}, "Access-Control-Allow-Origin": {"*"}, "Access-Control-Allow-Credentials": nil,
		"Content-Security-Policy": {"default-src 'self'", "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads allow-pointer-lock"},
		"Cache-Control":           {"max-age=60"}, "Etag": {`"e"`}, "Referrer-Policy": {"same-origin"}, "Location": {prefix + "/login?next=%2F"},
	} {
		if got := resp.Header.Values(name); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestPanelTrustedOrigin(t *testing.T) {
	guest := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "http://x")
	})
	e := startEdge(t, guest, edgeOptions{site: "shared_origin trusted\nframe_ancestors https://app.example"})
	resp, _ := e.get(e.panel(3000) + "/")
	if got := resp.Header.Values("Content-Security-Policy"); fmt.Sprint(got) != "[frame-ancestors https://app.example]" {
		t.Errorf("got %q", got)
	}
	if got := resp.Header.Get("Access-Control-Allow-Origin"); got != "http://x" {
		t.Errorf("got %q", got)
	}
}

// status gives the status and the wire's error code of a request.
func (e *edge) status(url string, header ...string) (int, string) {
	resp, body := e.get(url, header...)
	var b struct {
		Code  int
		Error string
	}
	if json.Unmarshal([]byte(body), &b) == nil && b.Error != "" && b.Code != resp.StatusCode {
		e.t.Errorf("status %d with a body that says %d", resp.StatusCode, b.Code)
	}
	return resp.StatusCode, b.Error
}

func TestPanelRefuses(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(echo), edgeOptions{})
	c := e.claims(3000)
	good := e.token(c)
	other := func(change func(*paneltoken.Claims)) string {
		c := c
		change(&c)
		return e.token(c)
	}
	tests := []struct {
		name, path string
		status     int
		code       string
	}{
		{"good", good + "/", 200, ""},
		{"tampered", good[:len(good)-4] + "AAAA/", 403, "token_invalid"},
		{"alg none", forged(good, `{"alg":"none","typ":"JWT"}`) + "/", 403, "token_invalid"},
		{"alg none, no signature", good[:strings.LastIndex(good, ".")+1] + "/", 403, "token_invalid"},
		{"empty", "/", 403, "token_invalid"},
		{"no token at all", "x/", 403, "token_invalid"},
		{"expired", other(func(c *paneltoken.Claims) { c.Expires = time.Now().Add(-time.Minute) }) + "/", 403, "token_expired"},
		{"unknown sandbox", other(func(c *paneltoken.Claims) { c.Sandbox = string(session.NewID()) }) + "/", 404, "sandbox_not_found"},
		{"no sandbox id", other(func(c *paneltoken.Claims) { c.Sandbox = "../x" }) + "/", 404, "sandbox_not_found"},
		{"unknown port", other(func(c *paneltoken.Claims) { c.Port = 3001 }) + "/", 404, "port_not_found"},
		{"view mode of another port", other(func(c *paneltoken.Claims) { c.Mode = paneltoken.View }) + "/", 403, "view_only"},
	}
	for _, tt := range tests {
		for _, upgrade := range []bool{false, true} {
			var header []string
			if upgrade {
				if tt.status == 200 {
					continue
				}
				header = []string{"Connection", "keep-alive, Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="}
			}
			resp, _ := e.get(e.url+"/panel/"+tt.path, header...)
			status, code := e.status(e.url+"/panel/"+tt.path, header...)
			if status != tt.status || code != tt.code {
				t.Errorf("%s, upgrade %v: got %d %q, want %d %q", tt.name, upgrade, status, code, tt.status, tt.code)
			}
			if resp.Header.Get("Access-Control-Allow-Origin") != "*" {
				t.Errorf("%s: a page cannot read its error", tt.name)
			}
		}
	}
	if status, _ := e.status(e.url + "/PANEL/" + good + "/"); status != 404 {
		t.Errorf("another spelling of the prefix: got %d", status)
	}
}

func TestPanelForeignIssuer(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(echo), edgeOptions{global: "max_failures -1"})
	// Made by hand from the documented claims, as another program would.
	line, err := os.ReadFile(e.dir + "/panel")
	if err != nil {
		t.Fatal(err)
	}
	secret := bytes.Repeat([]byte("s"), 40)
	line = append(line, "theirs base64:"+base64Std(secret)+" iss=cubeplex:sandbox-panel\n"...)
	if err := os.WriteFile(e.dir+"/panel", line, 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Now().Unix()
	tok := jws(secret, `{"alg":"HS256","typ":"JWT"}`, fmt.Sprintf(`{"sid":%q,"port":3000,"iat":%d,"exp":%d,"iss":"cubeplex:sandbox-panel"}`, e.rec.ID, now, now+60))
	e.update(func(r *session.Record) { r.Gen = 7 })
	testutil.Eventually(t, "the new key counts without a reload", func() bool {
		status, _ := e.status(e.url + "/panel/" + tok + "/")
		return status == 200
	})
	own := jws(secret, `{"alg":"HS256","typ":"JWT"}`, fmt.Sprintf(`{"sid":%q,"port":3000,"iat":%d,"exp":%d,"gen":7,"iss":"cubepod"}`, e.rec.ID, now, now+60))
	if status, _ := e.status(e.url + "/panel/" + own + "/"); status != 403 {
		t.Errorf("their key signs our issuer: got %d", status)
	}
}

func TestPanelSandboxStates(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(echo), edgeOptions{site: "wake_wait 50ms"})
	panel := e.panel(3000) + "/"
	browser := []string{"Sec-Fetch-Mode", "cors", "Sec-Fetch-Site", "same-origin"}
	tests := []struct {
		state  session.State
		gen    int64
		header []string
		status int
		code   string
	}{
		{session.Running, 1, nil, 200, ""},
		{session.Paused, 1, browser, 503, "sandbox_paused"},
		{session.Paused, 1, nil, 503, "sandbox_paused"}, // nobody to wake it
		{session.Pausing, 1, browser, 503, "sandbox_paused"},
		{session.Resuming, 1, browser, 503, "sandbox_starting"},
		{session.Creating, 1, nil, 503, "sandbox_starting"},
		{session.Failed, 1, nil, 503, "sandbox_failed"},
		{session.Deleting, 1, nil, 410, "sandbox_deleted"},
		{session.Deleted, 1, nil, 410, "sandbox_deleted"},
		{session.Running, 2, nil, 403, "token_revoked"},
		{session.Paused, 2, nil, 403, "token_revoked"},
	}
	for _, tt := range tests {
		e.update(func(r *session.Record) { r.State, r.Gen = tt.state, tt.gen })
		var status int
		var code string
		testutil.Eventually(t, fmt.Sprintf("%s gen %d answers %d %s", tt.state, tt.gen, tt.status, tt.code), func() bool {
			status, code = e.status(panel, tt.header...)
			return status == tt.status && code == tt.code
		})
	}
}

func TestPanelPortClosed(t *testing.T) {
	e := startEdge(t, nil, edgeOptions{})
	panel := e.panel(3000)
	if status, code := e.status(panel + "/"); status != 502 || code != "port_closed" {
		t.Errorf("got %d %q", status, code)
	}
	resp, body := e.get(panel+"/", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe")
	if resp.StatusCode != 502 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") || !strings.Contains(body, "port_closed") {
		t.Errorf("got %d %s", resp.StatusCode, body)
	}
	if strings.Contains(body, "http-equiv") {
		t.Error("an error page reloads itself")
	}
	e.podd.listen(3000, http.HandlerFunc(echo))
	if status, _ := e.status(panel + "/"); status != 200 {
		t.Errorf("once it listens: got %d", status)
	}
	e.update(func(r *session.Record) { r.Incarnation, r.Endpoint = 9, session.LocalEndpoint(r.ID, 9) })
	testutil.Eventually(t, "a daemon that is gone is told", func() bool {
		status, code := e.status(panel + "/")
		return status == 502 && code == "podd_unreachable"
	})
}

func TestPanelDirectAddress(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(echo))
	defer srv.Close()
	addr := netip.MustParseAddrPort(srv.Listener.Addr().String())
	e := startEdge(t, nil, edgeOptions{global: "allow_upstream 127.0.0.0/30"})
	for _, tt := range []struct {
		addr   netip.AddrPort
		status int
		code   string
	}{
		{addr, 200, ""},
		{netip.MustParseAddrPort("127.0.0.9:80"), 502, "address_not_allowed"},
		{netip.MustParseAddrPort("169.254.169.254:80"), 502, "address_not_allowed"},
		{netip.MustParseAddrPort("[::ffff:127.0.0.1]:1"), 502, "port_closed"},
	} {
		e.update(func(r *session.Record) { r.Ports[3000] = session.Port{Address: tt.addr} })
		panel := e.panel(3000) + "/"
		testutil.Eventually(t, fmt.Sprintf("%v answers %d %s", tt.addr, tt.status, tt.code), func() bool {
			status, code := e.status(panel)
			return status == tt.status && code == tt.code
		})
	}
}

func TestPanelSlashAndPreflight(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(echo), edgeOptions{})
	panel := e.panel(3000)
	resp, _ := e.get(panel + "?a=b")
	loc, err := resp.Location()
	if err != nil || resp.StatusCode != 308 || loc.String() != panel+"/?a=b" {
		t.Errorf("got %d %v, %v", resp.StatusCode, loc, err)
	}
	if resp.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Error("a page cannot follow the redirect")
	}
	if resp, _ := e.do(http.MethodPost, panel, nil); resp.StatusCode != 200 {
		t.Errorf("a POST without the slash: got %d", resp.StatusCode)
	}
	resp, _ = e.do(http.MethodOptions, panel+"/x", nil, "Origin", "null", "Access-Control-Request-Method", "PUT", "Access-Control-Request-Headers", "x-a")
	if h := resp.Header; resp.StatusCode != 204 || h.Get("Access-Control-Allow-Methods") != "PUT" || h.Get("Access-Control-Allow-Headers") != "x-a" || h.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("got %d %v", resp.StatusCode, h)
	}
	if resp, _ := e.do(http.MethodOptions, panel+"/x", nil); resp.Header.Get("X-Uri") != "/x" {
		t.Error("a plain OPTIONS does not reach the guest")
	}
}

func TestPanelBodies(t *testing.T) {
	data := randomBytes(8 << 20)
	sum := sha256.Sum256(data)
	e := startEdge(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Write(data)
			return
		}
		h := sha256.New()
		io.Copy(h, r.Body)
		io.WriteString(w, hex.EncodeToString(h.Sum(nil)))
	}), edgeOptions{})
	panel := e.panel(3000)
	if _, body := e.get(panel + "/"); sha256.Sum256([]byte(body)) != sum {
		t.Error("the download differs")
	}
	if _, body := e.do(http.MethodPost, panel+"/", bytes.NewReader(data)); body != hex.EncodeToString(sum[:]) {
		t.Error("the upload differs")
	}
	if _, body := e.do(http.MethodPost, panel+"/", io.MultiReader(bytes.NewReader(data))); body != hex.EncodeToString(sum[:]) {
		t.Error("the chunked upload differs")
	}
}

func TestPanelWithoutRedis(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(echo), edgeOptions{})
	panel := e.panel(3000)
	if status, _ := e.status(panel + "/"); status != 200 {
		t.Fatalf("got %d", status)
	}
	e.redis.Stop(t)
	for range 3 {
		if status, code := e.status(panel + "/"); status != 200 {
			t.Errorf("a known sandbox: got %d %s", status, code)
		}
	}
	c := e.claims(3000)
	c.Sandbox = string(session.NewID())
	resp, _ := e.get(e.url + "/panel/" + e.token(c) + "/")
	if status, code := e.status(e.url + "/panel/" + e.token(c) + "/"); status != 503 || code != "store_unavailable" || resp.Header.Get("Retry-After") == "" {
		t.Errorf("an unknown one: got %d %s, Retry-After %q", status, code, resp.Header.Get("Retry-After"))
	}
	e.redis.Start(t)
	testutil.Eventually(t, "the unknown one is 404 again", func() bool {
		status, _ := e.status(e.url + "/panel/" + e.token(c) + "/")
		return status == 404
	})
	// What changed while messages were lost counts as soon as Redis is back.
	e.update(func(r *session.Record) { r.State = session.Deleted })
	testutil.Eventually(t, "the known one is gone", func() bool {
		status, _ := e.status(panel + "/")
		return status == 410
	})
}

func TestPanelLogsHaveNoToken(t *testing.T) {
	guest := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/next")
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
		w.WriteHeader(http.StatusFound)
	})
	e := startEdge(t, guest, edgeOptions{})
	token := e.token(e.claims(3000))
	panel := e.url + "/panel/" + token
	e.rec.Ports[9222] = session.Port{}
	e.write(e.rec)
	e.get(panel+"/page?x=1&path=panel/"+token+"/websockify", "Referer", panel+"/")
	e.get(panel)                           // redirect
	e.get(panel[:len(panel)-3] + "AAA/x")  // refused
	e.get(e.url + "/PANEL/" + token + "/") // not found
	e.get(e.url + "/panel/" + e.token(e.claims(9222)) + "/json")
	e.get(panel + "/last")
	var log []byte
	testutil.Eventually(t, "the last request is in the log", func() bool {
		var err error
		log, err = os.ReadFile(e.logfile)
		return err == nil && bytes.Contains(log, []byte("/panel/REDACTED/last"))
	})
	for _, line := range bytes.Split(log, []byte("\n")) {
		if bytes.Contains(line, []byte(token[20:60])) {
			t.Errorf("the token is in: %s", line)
		}
	}
	var entry struct {
		Logger, Msg string
		Status      int
		Size        int
		Request     struct {
			Method, URI, Host string
			RemoteIP          string `json:"remote_ip"`
		}
	}
	for _, line := range bytes.Split(log, []byte("\n")) {
		if bytes.Contains(line, []byte("/panel/REDACTED/page")) && bytes.Contains(line, []byte("handled request")) {
			if err := json.Unmarshal(line, &entry); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !strings.HasPrefix(entry.Logger, "http.log.access") || entry.Status != 302 || entry.Request.Method != "GET" || entry.Request.RemoteIP != "127.0.0.1" {
		t.Errorf("got %+v", entry)
	}
}

func TestPanelWakes(t *testing.T) {
	var e *edge
	calls := make(chan string, 100)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls <- r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization")
		e.update(func(rec *session.Record) {
			rec.State, rec.Incarnation = session.Running, 2
			e.podd.serve(rec)
		})
	}))
	defer api.Close()
	e = startEdge(t, http.HandlerFunc(echo), edgeOptions{global: "api " + api.URL})
	e.update(func(r *session.Record) { r.State = session.Paused })
	token := e.token(e.claims(3000))
	panel := e.url + "/panel/" + token + "/"
	if status, code := e.status(panel, "Sec-Fetch-Mode", "no-cors"); status != 503 || code != "sandbox_paused" {
		t.Errorf("a page's request: got %d %s", status, code)
	}
	if len(calls) != 0 {
		t.Error("a page's request woke the sandbox")
	}
	if status, code := e.status(panel); status != 200 {
		t.Errorf("a program: got %d %s", status, code)
	}
	want := fmt.Sprintf("POST /sandboxes/%s/wake Bearer %s", e.rec.ID, token)
	if got := <-calls; got != want || len(calls) != 0 {
		t.Errorf("got %q and %d more, want %q once", got, len(calls), want)
	}
}

func TestPanelWaitingPage(t *testing.T) {
	release := make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-release
		w.WriteHeader(http.StatusAccepted)
	}))
	defer api.Close()
	defer close(release)
	e := startEdge(t, http.HandlerFunc(echo), edgeOptions{global: "api " + api.URL})
	e.update(func(r *session.Record) { r.State = session.Paused })
	resp, body := e.get(e.panel(3000)+"/", "Sec-Fetch-Mode", "navigate")
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || !strings.Contains(body, "http-equiv=\"refresh\"") || strings.Contains(body, "/panel/") {
		t.Errorf("got %d %v %s", resp.StatusCode, resp.Header, body)
	}
	e.update(func(r *session.Record) { r.State = session.Running })
	testutil.Eventually(t, "the page's reload gets the guest", func() bool {
		resp, _ := e.get(e.panel(3000)+"/", "Sec-Fetch-Mode", "navigate")
		return resp.StatusCode == 200
	})
}

func TestPanelErrorRoutes(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(echo), edgeOptions{extra: "handle_errors 403 {\nrespond \"ours {err.status_code} {uri}\"\n}"})
	_, body := e.get(e.url + "/panel/nonsense/x")
	if body != "ours 403 /panel/REDACTED/x" {
		t.Errorf("got %q", body)
	}
	if status, code := e.status(e.url + "/panel/" + e.token(func() paneltoken.Claims { c := e.claims(3000); c.Port = 1; return c }()) + "/"); status != 404 || code != "port_not_found" {
		t.Errorf("an error that no route handles: got %d %s", status, code)
	}
}
