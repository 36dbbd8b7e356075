package paneltoken_test

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/cubeplexai/cubepod/internal/keyfile"
	"github.com/cubeplexai/cubepod/internal/paneltoken"
)

func TestEdDSAOnlyVerifies(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key := keyfile.Key{ID: "pub", Public: public, Issuer: "maker"}
	now := time.Now()
	claims := jwt.MapClaims{"iss": "maker", "sid": sid, "port": 8080, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}
	v := paneltoken.NewVerifier(keyfile.Keys{newKey, key})
	for _, kid := range []string{"pub", ""} {
		if _, err := v.Verify(raw(t, jwt.SigningMethodEdDSA, kid, private, claims)); err != nil {
			t.Errorf("kid %q: %v", kid, err)
		}
	}
	for name, tok := range map[string]string{
		"the public key as a secret": raw(t, jwt.SigningMethodHS256, "pub", []byte(public), claims),
		"no kid, the same":           raw(t, jwt.SigningMethodHS256, "", []byte(public), claims),
		"our issuer":                 raw(t, jwt.SigningMethodEdDSA, "pub", private, jwt.MapClaims{"iss": "cubepod", "sid": sid, "port": 1, "gen": 1, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}),
	} {
		if _, err := v.Verify(tok); !errors.Is(err, paneltoken.ErrInvalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := paneltoken.NewSigner(keyfile.Keys{{ID: "pub", Public: public}}); err == nil {
		t.Error("a public key signs")
	}
}

// TestVerifySpellings tries what other programs may write, and what only an
// attacker would.
func TestVerifySpellings(t *testing.T) {
	now := time.Now().Unix()
	body := fmt.Sprintf(`"iss":"cubepod","sid":%q,"port":8080,"gen":1,"iat":%d,"exp":%d`, sid, now, now+60)
	tests := []struct {
		name, header, claims string
		good                 bool
	}{
		{"plain", `{"alg":"HS256","kid":"new"}`, "{" + body + "}", true},
		{"white space", "{ \"alg\" : \"HS256\" }\n", "{ " + body + " }", true},
		{"whole numbers written as others do", `{"alg":"HS256"}`, fmt.Sprintf(`{"iss":"cubepod","sid":%q,"port":8.08e3,"gen":1.0,"iat":%d.0,"exp":%d.0e0}`, sid, now, now+60), true},
		{"fraction in iat", `{"alg":"HS256"}`, fmt.Sprintf(`{"iss":"cubepod","sid":%q,"port":8080,"gen":1,"iat":%d.25,"exp":%d}`, sid, now-1, now+60), false},
		{"fraction in exp", `{"alg":"HS256"}`, fmt.Sprintf(`{"iss":"cubepod","sid":%q,"port":8080,"gen":1,"iat":%d,"exp":%d.5}`, sid, now, now+60), false},
		{"fraction in nbf", `{"alg":"HS256"}`, fmt.Sprintf(`{"iss":"cubepod","sid":%q,"port":8080,"gen":1,"iat":%d,"exp":%d,"nbf":%d.5}`, sid, now, now+60, now-9), false},
		{"fraction in gen", `{"alg":"HS256"}`, fmt.Sprintf(`{"iss":"cubepod","sid":%q,"port":8080,"gen":1.5,"iat":%d,"exp":%d}`, sid, now, now+60), false},
		{"escapes", `{"alg":"HS256"}`, strings.Replace("{"+body+"}", "cubepod", `c\u0075bepod`, 1), true},
		{"other claims", `{"alg":"HS256","typ":"JWT","jku":"http://x"}`, "{" + body + `,"aud":["x"],"sub":"y"}`, true},
		{"not before", `{"alg":"HS256"}`, "{" + body + fmt.Sprintf(`,"nbf":%d}`, now+30), false},
		{"critical extension", `{"alg":"HS256","crit":["b64"],"b64":false}`, "{" + body + "}", false},
		{"alg in another case", `{"alg":"hs256"}`, "{" + body + "}", false},
		{"alg that is none", `{"alg":null}`, "{" + body + "}", false},
		{"kid that is no text", `{"alg":"HS256","kid":7}`, "{" + body + "}", false},
		{"empty kid", `{"alg":"HS256","kid":""}`, "{" + body + "}", false},
		{"time at the end of days", `{"alg":"HS256"}`, fmt.Sprintf(`{"iss":"cubepod","sid":%q,"port":1,"gen":1,"iat":%d,"exp":1e300}`, sid, now), false},
		{"negative time", `{"alg":"HS256"}`, fmt.Sprintf(`{"iss":"cubepod","sid":%q,"port":1,"gen":1,"iat":-5,"exp":%d}`, sid, now+60), false},
		{"no object", `{"alg":"HS256"}`, `[]`, false},
		{"twice", `{"alg":"HS256"}`, "{" + body + "}{}", false},
	}
	v := paneltoken.NewVerifier(keys)
	for _, tt := range tests {
		tok := hs256(newKey.Secret, tt.header, tt.claims)
		for range 2 { // the second time it may be remembered
			if _, err := v.Verify(tok); (err == nil) != tt.good {
				t.Errorf("%s: got %v", tt.name, err)
			}
		}
		if !tt.good {
			continue
		}
		for name, other := range map[string]string{
			"padding": tok + "=", "a line's end": tok + "\n", "a fourth part": tok + ".e30",
			"loose bits": tok[:len(tok)-1] + string(tok[len(tok)-1]+1),
		} {
			if _, err := v.Verify(other); err == nil {
				t.Errorf("%s with %s is taken for another", tt.name, name)
			}
		}
	}
}

func TestRememberedTokensExpire(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	v := paneltoken.NewVerifier(keys)
	tok := sign(t, newKey, paneltoken.Claims{Sandbox: sid, Port: 1, Gen: 1, IssuedAt: now, Expires: now.Add(time.Second - paneltoken.Leeway)})
	if _, err := v.Verify(tok); err != nil {
		t.Fatal(err)
	}
	late := time.NewTimer(time.Until(now.Add(time.Second)) + 10*time.Millisecond)
	<-late.C
	if _, err := v.Verify(tok); !errors.Is(err, paneltoken.ErrExpired) {
		t.Errorf("got %v", err)
	}
}

// TestManyTokens fills the memory of a verifier more than twice.
func TestManyTokens(t *testing.T) {
	now := time.Now()
	v := paneltoken.NewVerifier(keys)
	first := sign(t, newKey, paneltoken.Claims{Sandbox: sid, Port: 1, Gen: 1, IssuedAt: now, Expires: now.Add(time.Hour)})
	for i := range int64(20_000) {
		tok := sign(t, newKey, paneltoken.Claims{Sandbox: sid, Port: 2, Gen: i + 1, IssuedAt: now, Expires: now.Add(time.Hour)})
		if c, err := v.Verify(tok); err != nil || c.Gen != i+1 || c.Port != 2 {
			t.Fatalf("got %+v, %v", c, err)
		}
		if c, err := v.Verify(first); err != nil || c.Port != 1 {
			t.Fatalf("the first: got %+v, %v", c, err)
		}
	}
}

func FuzzVerify(f *testing.F) {
	now := time.Now()
	good := hs256(newKey.Secret, `{"alg":"HS256","kid":"new"}`, fmt.Sprintf(`{"iss":"cubepod","sid":%q,"port":1,"gen":1,"iat":%d,"exp":%d}`, sid, now.Unix(), now.Unix()+1e6))
	f.Add(good)
	f.Add(good + ".")
	f.Add("e30.e30.")
	f.Add("..")
	f.Fuzz(func(t *testing.T, tok string) {
		v := paneltoken.NewVerifier(keys)
		_, err := v.Verify(tok)
		if err == nil && tok != good {
			t.Errorf("%q is taken for a token", tok)
		}
	})
}

// FuzzClaims signs whatever payload: what is accepted makes sense.
func FuzzClaims(f *testing.F) {
	f.Add(`{"alg":"HS256"}`, `{"iss":"cubepod","sid":"a","port":1,"gen":1,"iat":1,"exp":99999999999}`)
	f.Add(`{"alg":"HS256","kid":"plex"}`, `{"iss":"cubeplex:sandbox-panel","sid":"a","port":1,"iat":1,"exp":1e11,"mode":"view"}`)
	f.Fuzz(func(t *testing.T, header, claims string) {
		c, err := paneltoken.NewVerifier(keys).Verify(hs256(newKey.Secret, header, claims))
		if err != nil {
			return
		}
		if c.Issuer != paneltoken.Issuer || c.Sandbox == "" || c.Port < 1 || c.Port > 65535 || c.Gen < 1 || c.Expires.Before(time.Now().Add(-paneltoken.Leeway)) ||
			(c.Mode != paneltoken.Control && c.Mode != paneltoken.View) {
			t.Errorf("%s gives %+v", claims, c)
		}
	})
}

func benchToken(b testing.TB, gen int64) string {
	now := time.Now()
	s, err := paneltoken.NewSigner(keyfile.Keys{newKey})
	if err != nil {
		b.Fatal(err)
	}
	tok, err := s.Sign(paneltoken.Claims{Sandbox: sid, Port: 8080, Gen: gen, IssuedAt: now, Expires: now.Add(time.Hour), Mode: paneltoken.Control})
	if err != nil {
		b.Fatal(err)
	}
	return tok
}

func TestVerifyAllocations(t *testing.T) {
	v := paneltoken.NewVerifier(keys)
	seen := benchToken(t, 1)
	if n := testing.AllocsPerRun(100, func() { v.Verify(seen) }); n > 0 {
		t.Errorf("seen before: %v allocations", n)
	}
	var fresh []string
	for i := range int64(2000) {
		fresh = append(fresh, benchToken(t, i+2))
	}
	// The table's growth is in it, spread over many.
	n := testing.AllocsPerRun(1, func() {
		for _, tok := range fresh[:len(fresh)/2] {
			v.Verify(tok)
		}
		fresh = fresh[len(fresh)/2:]
	}) / 1000
	if n > 4.5 {
		t.Errorf("new: %v allocations", n)
	}
}

func BenchmarkVerifySeen(b *testing.B) {
	v := paneltoken.NewVerifier(keys)
	tok := benchToken(b, 1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Verify(tok); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerifyNew(b *testing.B) {
	v := paneltoken.NewVerifier(keys)
	toks := make([]string, 50_000) // many more than are remembered
	for i := range toks {
		toks[i] = benchToken(b, int64(i)+1)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, err := v.Verify(toks[i%len(toks)]); err != nil {
			b.Fatal(err)
		}
		i++
	}
}
