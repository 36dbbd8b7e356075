package caddymodule_test

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

// TestKeysRotate walks the way of an operator who replaces a panel key.
func TestKeysRotate(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(echo), edgeOptions{global: "max_failures -1"})
	file := e.dir + "/panel"
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	panel := e.panel(3000) + "/"
	secret := bytes.Repeat([]byte("n"), 32)
	now := time.Now().Unix()
	fresh := e.url + "/panel/" + jws(secret, `{"alg":"HS256","kid":"next"}`, fmt.Sprintf(`{"sid":%q,"port":3000,"iat":%d,"exp":%d,"gen":1,"iss":"cubepod"}`, e.rec.ID, now, now+600)) + "/"
	line := []byte("next base64:" + base64Std(secret) + "\n")
	status := func(url string) int { s, _ := e.status(url); return s }
	write := func(content []byte) { // as an editor or a secret's mount does: by rename
		t.Helper()
		if err := os.WriteFile(file+".new", content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	if got := status(fresh); got != 403 {
		t.Fatalf("before: got %d", got)
	}
	write(append(append([]byte{}, old...), line...))
	testutil.Eventually(t, "the new key counts", func() bool { return status(fresh) == 200 })
	if got := status(panel); got != 200 {
		t.Errorf("the old key: got %d", got)
	}
	write([]byte("nonsense\n"))
	testutil.Eventually(t, "the bad file is told of", func() bool {
		log, err := os.ReadFile(e.logfile)
		return err == nil && bytes.Contains(log, []byte("the keys stay as they were"))
	})
	if status(fresh) != 200 || status(panel) != 200 {
		t.Error("a bad file takes the keys away")
	}
	write(line)
	testutil.Eventually(t, "the old key is gone", func() bool { return status(panel) == 403 })
	if got := status(fresh); got != 200 {
		t.Errorf("the new key: got %d", got)
	}
	if log, _ := os.ReadFile(e.logfile); bytes.Contains(log, []byte(base64Std(secret))) {
		t.Error("the log quotes a secret")
	}
}

// TestKeyWithdrawnEndsStreams takes a key away from under open streams: by the
// file alone, and by a configuration that names another file.
func TestKeyWithdrawnEndsStreams(t *testing.T) {
	for name, by := range map[string]func(e *edge, content []byte){
		"file": func(e *edge, content []byte) {
			if err := os.WriteFile(e.dir+"/panel", content, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"reload": func(e *edge, content []byte) {
			if err := os.WriteFile(e.dir+"/other", content, 0o600); err != nil {
				t.Fatal(err)
			}
			e.options.keys = e.dir + "/other"
			e.load("again")
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := startEdge(t, http.HandlerFunc(wsEcho), edgeOptions{global: "max_failures -1"})
			file, err := os.ReadFile(e.dir + "/panel")
			if err != nil {
				t.Fatal(err)
			}
			old := e.dial(e.panel(3000) + "/ws")
			e.ping(old, "x")
			secret := bytes.Repeat([]byte("n"), 32)
			line := []byte("next base64:" + base64Std(secret) + "\n")
			if err := os.WriteFile(e.dir+"/panel", append(file, line...), 0o600); err != nil {
				t.Fatal(err)
			}
			now := time.Now().Unix()
			fresh := e.url + "/panel/" + jws(secret, `{"alg":"HS256","kid":"next"}`, fmt.Sprintf(`{"sid":%q,"port":3000,"iat":%d,"exp":%d,"gen":1,"iss":"cubepod"}`, e.rec.ID, now, now+600))
			testutil.Eventually(t, "the new key counts", func() bool { s, _ := e.status(fresh + "/"); return s == http.StatusUpgradeRequired })
			stays := e.dial(fresh + "/ws")
			e.ping(old, "both keys are there")
			by(e, line)
			if code, reason := e.closeStatus(old); code != 1008 || reason != "key_withdrawn" {
				t.Errorf("got %d %q", code, reason)
			}
			e.ping(stays, "its key is still there")
		})
	}
}

func TestKeysThatOnlyVerify(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(echo), edgeOptions{global: "max_failures -1"})
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(e.dir+"/panel", []byte("maker ed25519:"+base64Std(public)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	tok := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{"iss": "cubepod", "sid": e.rec.ID, "port": 3000, "gen": 1, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()})
	tok.Header["kid"] = "maker"
	text, err := tok.SignedString(private)
	if err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the public key counts", func() bool {
		status, _ := e.status(e.url + "/panel/" + text + "/")
		return status == 200
	})
}
