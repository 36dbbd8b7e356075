package sessionapi_test

import (
	"crypto/ed25519"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/cubeplexai/cubepod/internal/keyfile"
	"github.com/cubeplexai/cubepod/internal/paneltoken"
	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi"
)

func TestPanels(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{})
	id := a.create("")
	panels := box(id, "/panels")
	verifier := paneltoken.NewVerifier(w.keys.Panel)

	got := a.want(201, "POST", panels, `{"port":3000,"path":"/app/x?y=%2F","expiresInSeconds":60}`).json(t)
	token := got["token"].(string)
	if got["url"] != "/panel/"+token+"/app/x?y=%2F" {
		t.Errorf("got %v", got)
	}
	c, err := verifier.Verify(token)
	if err != nil || c.Port != 3000 || c.Mode != paneltoken.Control || c.Gen != 1 || c.Expires.Sub(c.IssuedAt) != time.Minute {
		t.Errorf("got %+v, %v", c, err)
	}
	if _, ok := a.record(id).Ports[3000]; !ok {
		t.Error("the port is not registered")
	}
	got = a.want(201, "POST", panels, `{"port":8080,"mode":"view"}`).json(t)
	if c, _ := verifier.Verify(got["token"].(string)); c.Mode != paneltoken.View {
		t.Errorf("got %+v", c)
	}

	a.want(204, "POST", box(id, "/panels/revoke"), "")
	got = a.want(201, "POST", panels, `{"port":3000}`).json(t)
	if c, _ := verifier.Verify(got["token"].(string)); c.Gen != 2 {
		t.Errorf("after revoking: %+v", c)
	}
	if inc := a.record(id).Incarnation; inc != 1 {
		t.Errorf("revoking made incarnation %d", inc)
	}

	for body, code := range map[string]string{
		``:                          "invalid_port",
		`{"port":0}`:                "invalid_port",
		`{"port":65536}`:            "invalid_port",
		`{"port":"80"}`:             "invalid_body",
		`{"port":9223}`:             "port_not_allowed",
		`{"port":49983}`:            "port_not_allowed",
		`{"port":80,"path":"x"}`:    "invalid_path",
		`{"port":80,"path":"/%zz"}`: "invalid_path",
		`{"port":80,"path":"/a b"}`: "invalid_path",
		`{"port":80,"path":"/\r\nSet-Cookie: a=b"}`: "invalid_path",
		`{"port":80,"mode":"view"}`:                 "invalid_mode",
		`{"port":9222,"mode":"view"}`:               "invalid_mode",
		`{"port":80,"mode":"root"}`:                 "invalid_mode",
		`{"port":80,"expiresInSeconds":-1}`:         "invalid_expiry",
	} {
		a.refused(400, code, "POST", panels, body)
	}

	// A paused sandbox has panels too: they wake it.
	a.want(204, "POST", box(id, "/pause"), "")
	a.want(201, "POST", panels, `{"port":3000}`)
}

// TestMintingStorm has more callers write one record than could each be first.
func TestMintingStorm(t *testing.T) {
	w := newWorld(t)
	a, b := w.replica(sessionapi.Options{}), w.replica(sessionapi.Options{})
	id := a.create("")
	for _, body := range []string{`{"port":3000,"expiresInSeconds":60}`, `{"port":3001,"expiresInSeconds":7200}`} {
		if got := many(t, 120, "POST", box(id, "/panels"), body, a, b); got[0] != 201 || got[len(got)-1] != 201 {
			t.Fatalf("got %v", got)
		}
	}
	if got := many(t, 40, "POST", box(id, "/panels/revoke"), "", a, b); got[0] != 204 || got[len(got)-1] != 204 {
		t.Errorf("got %v", got)
	}
	if got := a.record(id).Gen; got != 41 {
		t.Errorf("gen %d after 40 revocations", got)
	}
	e, err := a.store.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	a.want(201, "POST", box(id, "/panels"), `{"port":3001,"expiresInSeconds":7200}`)
	if again, _ := a.store.Get(t.Context(), id); again.Rev != e.Rev {
		t.Error("a URL like the last one made a write")
	}
}

func TestPorts(t *testing.T) {
	w := newWorld(t)
	a := w.replica(sessionapi.Options{AllowUpstream: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	id := a.create("")
	list := func() string { return strings.TrimSpace(string(a.want(200, "GET", box(id, "/ports"), "").body)) }
	if got := list(); got != `{"ports":[]}` {
		t.Errorf("got %s", got)
	}
	a.want(200, "PUT", box(id, "/ports/8000"), "")
	a.want(200, "PUT", box(id, "/ports/3000"), `{"address":"10.1.2.3:3001"}`)
	a.want(200, "PUT", box(id, "/ports/3002"), `{"address":"[::ffff:10.1.2.3]:3001"}`)
	if got := list(); got != `{"ports":[{"port":3000,"address":"10.1.2.3:3001"},{"port":3002,"address":"10.1.2.3:3001"},{"port":8000}]}` {
		t.Errorf("got %s", got)
	}
	// A panel for a port with an address leaves the address.
	a.want(201, "POST", box(id, "/panels"), `{"port":3000}`)
	if a.record(id).Ports[3000].Address.Port() != 3001 {
		t.Error("the address is gone")
	}
	a.want(204, "DELETE", box(id, "/ports/3000"), "")
	a.refused(404, "port_not_found", "DELETE", box(id, "/ports/3000"), "")
	for _, bad := range []struct{ path, body, code string }{
		{"0", "", "invalid_port"},
		{"65536", "", "invalid_port"},
		{"x", "", "invalid_port"},
		{"9223", "", "port_not_allowed"},
		{"80", `{"address":"127.0.0.1:80"}`, "address_not_allowed"},
		{"80", `{"address":"[fe80::1%eth0]:80"}`, "address_not_allowed"},
		{"80", `{"address":"localhost:80"}`, "invalid_address"},
		{"80", `{"address":"unix//var/run/docker.sock"}`, "invalid_address"},
		{"80", `{"address":"10.0.0.1:0"}`, "invalid_address"},
		{"80", `{"address":""}`, "invalid_address"},
		{"80", `{"address":80}`, "invalid_body"},
	} {
		a.refused(400, bad.code, "PUT", box(id, "/ports/", bad.path), bad.body)
	}
	closed := w.replica(sessionapi.Options{})
	closed.refused(400, "address_not_allowed", "PUT", box(id, "/ports/80"), `{"address":"10.1.2.3:80"}`)
}

// wake calls wake with a panel token in place of an API key.
func (r *replica) wake(id session.ID, token string) answer {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), "POST", r.url+box(id, "/wake"), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body := make([]byte, 1024)
	n, _ := resp.Body.Read(body)
	return answer{resp.StatusCode, resp.Header, body[:n]}
}

func TestWake(t *testing.T) {
	w := newWorld(t)
	w.rt.installCtl(t, goodCtl)
	a := w.replica(sessionapi.Options{})
	slow := w.replica(sessionapi.Options{WakeWait: time.Millisecond})
	id := a.create("")
	d := a.want(200, "POST", box(id, "/desktop/start"), "").json(t)
	viewer := tokenOf(t, d["desktopUrl"])
	other := a.want(201, "POST", box(id, "/panels"), `{"port":3000}`).json(t)["token"].(string)
	started := func() bool {
		_, err := os.Stat(w.rt.ctl + ".args")
		os.Remove(w.rt.ctl + ".args")
		return err == nil
	}
	started()

	if got := a.wake(id, other); got.status != 200 {
		t.Errorf("running: got %s", got)
	}
	a.want(204, "POST", box(id, "/pause"), "")
	if got := a.wake(id, other); got.status != 200 || a.state(id) != "running" || started() {
		t.Errorf("an app's port: got %s", got)
	}
	a.want(204, "POST", box(id, "/pause"), "")
	if got := a.wake(id, viewer); got.status != 200 || got.json(t)["status"] != "ready" || a.state(id) != "running" || !started() {
		t.Errorf("the viewer's port: got %s", got)
	}
	a.want(200, "POST", box(id, "/desktop/stop"), "")
	started()
	a.want(204, "POST", box(id, "/pause"), "")
	if got := a.wake(id, viewer); got.status != 200 || started() {
		t.Errorf("a stopped desktop: got %s", got)
	}

	a.want(204, "POST", box(id, "/pause"), "")
	release := w.rt.hold()
	defer release()
	for range 3 {
		if got := slow.wake(id, viewer); got.status != 202 {
			t.Errorf("still starting: got %s", got)
		}
	}
	release()
	a.eventually(id, "running")

	stranger := keyfile.Keys{{ID: "p1", Secret: []byte(strings.Repeat("x", 32))}}
	signer, _ := paneltoken.NewSigner(stranger)
	now := time.Now()
	claims := paneltoken.Claims{Sandbox: string(id), Port: 3000, IssuedAt: now, Expires: now.Add(time.Minute), Gen: 1}
	forged, _ := signer.Sign(claims)
	signer, _ = paneltoken.NewSigner(w.keys.Panel)
	claims.Expires = now.Add(-time.Minute)
	expired, _ := signer.Sign(claims)
	claims.Expires, claims.Port = now.Add(time.Minute), 4000
	unregistered, _ := signer.Sign(claims)
	id2 := a.create("")
	for name, c := range map[string]struct {
		id     session.ID
		token  string
		status int
		code   string
	}{
		"none":              {id, "", 401, "unauthorized"},
		"an API key":        {id, rootKey, 403, "panel_token_invalid"},
		"forged":            {id, forged, 403, "panel_token_invalid"},
		"expired":           {id, expired, 403, "panel_token_invalid"},
		"another sandbox's": {id2, other, 403, "panel_token_invalid"},
		"unregistered port": {id, unregistered, 404, "port_not_found"},
	} {
		if got := a.wake(c.id, c.token); got.status != c.status || got.code() != c.code {
			t.Errorf("%s: got %s, want %d %s", name, got, c.status, c.code)
		}
	}
	a.want(204, "POST", box(id, "/panels/revoke"), "")
	if got := a.wake(id, other); got.status != 403 {
		t.Errorf("revoked: got %s", got)
	}
	fresh := a.want(201, "POST", box(id, "/panels"), `{"port":3000}`).json(t)["token"].(string)
	a.want(204, "DELETE", box(id), "")
	if got := a.wake(id, fresh); got.status != 410 || got.code() != "sandbox_deleted" {
		t.Errorf("deleted: got %s", got)
	}
	testutil.Eventually(t, "nothing is left", func() bool { boxes, _ := w.rt.count(); return boxes == 1 })
}

// TestWakeByAnotherIssuer has a key file as an edge may have it: the first line
// is another program's public key.
func TestWakeByAnotherIssuer(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.keys.Panel = append(keyfile.Keys{{ID: "pub", Public: public, Issuer: "maker"}}, w.keys.Panel...)
	a := w.replica(sessionapi.Options{})
	id := a.create("")
	own := a.want(201, "POST", box(id, "/panels"), `{"port":3000}`).json(t)["token"].(string)
	now := time.Now()
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{
		"iss": "maker", "sid": string(id), "port": 3000, "iat": now.Unix(), "exp": now.Add(time.Minute).Unix(),
	})
	token.Header["kid"] = "pub"
	theirs, err := token.SignedString(private)
	if err != nil {
		t.Fatal(err)
	}
	for name, token := range map[string]string{"own": own, "theirs": theirs} {
		if got := a.wake(id, token); got.status != 200 {
			t.Errorf("%s: got %s", name, got)
		}
	}
}
