package keyfile_test

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cubeplexai/cubepod/internal/keyfile"
)

var secret = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))

func TestParse(t *testing.T) {
	ks, err := keyfile.Parse(strings.NewReader("# comment\n\nnew base64:" + secret + "\n old base64:" + secret + " iss=cubeplex:sandbox-panel\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(ks) != 2 || ks.Signing().ID != "new" || ks[1].Issuer != "cubeplex:sandbox-panel" {
		t.Errorf("got %+v", ks)
	}
	if k, ok := ks.Find("old"); !ok || !bytes.Equal(k.Secret, bytes.Repeat([]byte{7}, 32)) {
		t.Errorf("got %+v, %v", k, ok)
	}
}

func TestParseErrors(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"empty", "\n# nothing\n", "no key in it"},
		{"one word", "k1\n", "line 1: want"},
		{"bad id", "k/1 base64:" + secret, "key id"},
		{"no prefix", "k1 " + secret, `does not start with "base64:"`},
		{"not base64", "k1 base64:%%%", "is not base64"},
		{"short", "\nk1 base64:QUJD", "line 2: the secret has 3 bytes, want at least 32"},
		{"bad third word", "k1 base64:" + secret + " issuer=x", `"iss=NAME"`},
		{"twice", "k base64:" + secret + "\nk base64:" + secret, `line 2: key id "k" is there twice`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := keyfile.Parse(strings.NewReader(tt.in))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want %q", err, tt.want)
			}
			if strings.Contains(err.Error(), secret) {
				t.Error("the error quotes the secret")
			}
		})
	}
}

func TestParseVerifying(t *testing.T) {
	in := "a base64:" + secret + "\nb ed25519:" + secret + " iss=maker\n"
	ks, err := keyfile.ParseVerifying(strings.NewReader(in))
	if err != nil {
		t.Fatal(err)
	}
	if k, _ := ks.Find("b"); k.Secret != nil || len(k.Public) != 32 || k.Issuer != "maker" {
		t.Errorf("got %+v", k)
	}
	if public, err := keyfile.ParseVerifying(strings.NewReader("b ed25519:" + secret + "\na base64:" + secret + "\n")); err != nil || public.Signing().ID != "a" {
		t.Errorf("the public one is first: got %+v, %v", public, err)
	}
	if _, err := keyfile.Parse(strings.NewReader(in)); err == nil || !strings.Contains(err.Error(), "line 2: a public key only verifies") {
		t.Errorf("where a secret is needed: got %v", err)
	}
	if _, err := keyfile.ParseVerifying(strings.NewReader("b ed25519:QUJD\n")); err == nil || !strings.Contains(err.Error(), "32 bytes") {
		t.Errorf("a short one: got %v", err)
	}
}

func TestEnsureGivesRacersOneKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys", "panel")
	got := make([]keyfile.Keys, 8)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			ks, err := keyfile.Ensure(path, "k1")
			if err != nil {
				t.Error(err)
				return
			}
			got[i] = ks
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for _, ks := range got {
		if !bytes.Equal(ks[0].Secret, got[0][0].Secret) {
			t.Fatal("two callers got different keys")
		}
	}
	if fi, _ := os.Stat(path); fi.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, want 0600", fi.Mode().Perm())
	}
}
