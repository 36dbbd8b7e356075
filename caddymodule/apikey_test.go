package caddymodule_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cubeplexai/cubepod/internal/keyfile"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// TestNoCredentialInLogs runs the edge with the shipped Caddyfile, breaks off a
// stream and an upload of the API, and looks for what they carried in all that
// the process writes.
func TestNoCredentialInLogs(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			return // only to see that the edge serves
		}
		if r.URL.Path == "/v2/broken" {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Set-Cookie", r.Header.Get("Cookie"))
		io.WriteString(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(api.Close)
	e := runShipped(t, api.URL)

	var secrets []string
	secret := func(prefix string) string {
		secrets = append(secrets, rand.Text())
		return prefix + secrets[len(secrets)-1]
	}
	header := http.Header{
		"X-Api-Key": {secret("cp_")}, "Authorization": {secret("Bearer ")}, "Proxy-Authorization": {secret("Basic ")},
		"Cookie": {secret("session=")}, "Sec-Websocket-Protocol": {secret("cubepod, bearer.")},
		"Referer": {"https://console.example/?key=" + secret("cp_")},
	}
	query := "?key=" + secret("cp_")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", e.url+"/v2/sandboxes/events"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	cancel()
	e.awaitLog("aborting with incomplete response")

	if r, err = http.NewRequestWithContext(t.Context(), "GET", e.url+"/v2/broken"+query, nil); err != nil {
		t.Fatal(err)
	}
	r.Header = header
	if resp, err = client.Do(r); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	e.awaitLog("/v2/broken")

	r, err = http.NewRequestWithContext(t.Context(), "GET", e.admin+"/config/?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	resp, err = client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	e.awaitLog("received request")

	if err := e.stop(); err != nil {
		t.Error(err)
	}
	log, err := os.ReadFile(e.logfile)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(log) {
		for _, s := range secrets {
			if bytes.Contains(line, []byte(s)) {
				t.Errorf("%s is in: %s", s, line)
			}
		}
	}
	if !bytes.Contains(log, []byte(`"X-Api-Key":["REDACTED"]`)) {
		t.Error("no header is in the log: this proves nothing")
	}
}

// shipped is a process of the edge with the shipped Caddyfile.
type shipped struct {
	t          *testing.T
	url, admin string // of the API's site, and of Caddy's own API
	logfile    string
	stop       func() error
}

func runShipped(t *testing.T, api string) *shipped {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "edge")
	if out, err := exec.Command("go", "build", "-o", bin, "./caddy").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"panel", "tunnel"} {
		if _, err := keyfile.Ensure(filepath.Join(dir, name), name+"1"); err != nil {
			t.Fatal(err)
		}
	}
	panel, site, admin := freePort(t), freePort(t), freePort(t)
	e := &shipped{t: t, url: fmt.Sprintf("http://localhost:%d", site), admin: fmt.Sprintf("http://localhost:%d", admin), logfile: filepath.Join(dir, "log")}
	log, err := os.Create(e.logfile)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() // the process has its own
	cmd := exec.Command(bin, "run", "--config", "../Caddyfile", "--adapter", "caddyfile")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir,
		"CUBEPOD_AUTO_HTTPS=off", "CUBEPOD_CADDY_STORAGE="+dir+"/caddy", "CUBEPOD_REDIS="+testutil.StartRedis(t).URL,
		"CUBEPOD_PANEL_KEYS="+dir+"/panel", "CUBEPOD_TUNNEL_KEY_FILE="+dir+"/tunnel", "CUBEPOD_LOCAL_SOCKETS="+dir+"/sockets",
		"CUBEPOD_API_URL="+api, fmt.Sprintf("CUBEPOD_ADMIN=localhost:%d", admin),
		fmt.Sprintf("CUBEPOD_PANEL_SITE=http://localhost:%d", panel), "CUBEPOD_API_SITE="+e.url,
		fmt.Sprintf("CUBEPOD_OTHER_NAMES=http://:%d, http://:%d", panel, site))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the process
	e.stop = func() error {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		return <-ended
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	testutil.Eventually(t, "the edge serves", func() bool {
		resp, err := client.Head(e.url + "/")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == 200
	})
	return e
}

// awaitLog waits until the log has the text.
func (e *shipped) awaitLog(text string) {
	e.t.Helper()
	testutil.Eventually(e.t, text+" is in the log", func() bool {
		log, err := os.ReadFile(e.logfile)
		return err == nil && bytes.Contains(log, []byte(text))
	})
}
