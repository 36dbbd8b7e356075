package paneltoken_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/cubeplexai/cubepod/internal/keyfile"
	"github.com/cubeplexai/cubepod/internal/paneltoken"
)

const sid = "abcdefghij0123456789"

var (
	newKey  = keyfile.Key{ID: "new", Secret: bytes.Repeat([]byte{1}, 32)}
	oldKey  = keyfile.Key{ID: "old", Secret: bytes.Repeat([]byte{2}, 32)}
	plexKey = keyfile.Key{ID: "plex", Secret: bytes.Repeat([]byte{3}, 32), Issuer: "cubeplex:sandbox-panel"}
	keys    = keyfile.Keys{newKey, oldKey, plexKey}
)

func sign(t *testing.T, k keyfile.Key, c paneltoken.Claims) string {
	t.Helper()
	s, err := paneltoken.NewSigner(keyfile.Keys{k})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := s.Sign(c)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func raw(t *testing.T, method jwt.SigningMethod, kid string, secret any, claims jwt.MapClaims) string {
	t.Helper()
	tok := jwt.NewWithClaims(method, claims)
	if kid != "" {
		tok.Header["kid"] = kid
	}
	s, err := tok.SignedString(secret)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRoundTrip(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	want := paneltoken.Claims{Issuer: paneltoken.Issuer, Sandbox: sid, Port: 8080, IssuedAt: now, Expires: now.Add(time.Hour), Gen: 3, Mode: paneltoken.View}
	v := paneltoken.NewVerifier(keys)
	for _, k := range []keyfile.Key{newKey, oldKey} {
		got, err := v.Verify(sign(t, k, want))
		if err != nil {
			t.Fatalf("%s: %v", k.ID, err)
		}
		if got != want {
			t.Errorf("%s: got %+v, want %+v", k.ID, got, want)
		}
	}
}

func TestForeignIssuer(t *testing.T) {
	now := time.Now()
	claims := jwt.MapClaims{"iss": "cubeplex:sandbox-panel", "sid": sid, "port": 7681, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}
	v := paneltoken.NewVerifier(keys)
	got, err := v.Verify(raw(t, jwt.SigningMethodHS256, "", plexKey.Secret, claims))
	if err != nil {
		t.Fatal(err)
	}
	if got.Gen != 0 || got.Mode != paneltoken.Control || got.Port != 7681 {
		t.Errorf("got %+v", got)
	}
}

func TestVerifyRefuses(t *testing.T) {
	now := time.Now()
	good := func() jwt.MapClaims {
		return jwt.MapClaims{"iss": "cubepod", "sid": sid, "port": 8080, "gen": 1, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}
	}
	with := func(k string, v any) jwt.MapClaims {
		c := good()
		if c[k] = v; v == nil {
			delete(c, k)
		}
		return c
	}
	hs := jwt.SigningMethodHS256
	valid := raw(t, hs, "new", newKey.Secret, good())
	parts := strings.Split(valid, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + parts[1] + "."
	tests := []struct {
		name, token string
		want        error
	}{
		{"empty", "", paneltoken.ErrInvalid},
		{"garbage", "no-token-at-all", paneltoken.ErrInvalid},
		{"too long", valid + strings.Repeat("A", paneltoken.MaxLength), paneltoken.ErrInvalid},
		{"tampered payload", parts[0] + "." + parts[1] + "A." + parts[2], paneltoken.ErrInvalid},
		{"tampered signature", valid[:len(valid)-4] + "AAAA", paneltoken.ErrInvalid},
		{"alg none", none, paneltoken.ErrInvalid},
		{"another alg", raw(t, jwt.SigningMethodHS512, "new", newKey.Secret, good()), paneltoken.ErrInvalid},
		{"unknown kid", raw(t, hs, "gone", newKey.Secret, good()), paneltoken.ErrInvalid},
		{"kid of another key", raw(t, hs, "old", newKey.Secret, good()), paneltoken.ErrInvalid},
		{"issuer of another key", raw(t, hs, "new", newKey.Secret, with("iss", "cubeplex:sandbox-panel")), paneltoken.ErrInvalid},
		{"foreign key, our issuer", raw(t, hs, "plex", plexKey.Secret, good()), paneltoken.ErrInvalid},
		{"no issuer", raw(t, hs, "new", newKey.Secret, with("iss", nil)), paneltoken.ErrInvalid},
		{"expired", raw(t, hs, "new", newKey.Secret, with("exp", now.Add(-6*time.Second).Unix())), paneltoken.ErrExpired},
		{"no expiry", raw(t, hs, "new", newKey.Secret, with("exp", nil)), paneltoken.ErrInvalid},
		{"from the future", raw(t, hs, "new", newKey.Secret, with("iat", now.Add(time.Minute).Unix())), paneltoken.ErrInvalid},
		{"no sid", raw(t, hs, "new", newKey.Secret, with("sid", nil)), paneltoken.ErrInvalid},
		{"port 0", raw(t, hs, "new", newKey.Secret, with("port", 0)), paneltoken.ErrInvalid},
		{"port out of range", raw(t, hs, "new", newKey.Secret, with("port", 70000)), paneltoken.ErrInvalid},
		{"fractional port", raw(t, hs, "new", newKey.Secret, with("port", 80.5)), paneltoken.ErrInvalid},
		{"port as text", raw(t, hs, "new", newKey.Secret, with("port", "8080")), paneltoken.ErrInvalid},
		{"our issuer without gen", raw(t, hs, "new", newKey.Secret, with("gen", nil)), paneltoken.ErrInvalid},
		{"unknown mode", raw(t, hs, "new", newKey.Secret, with("mode", "root")), paneltoken.ErrInvalid},
	}
	v := paneltoken.NewVerifier(keys)
	if _, err := v.Verify(valid); err != nil {
		t.Fatalf("the token the others are made from: %v", err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := v.Verify(tt.token)
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if err != nil && tt.token != "" && strings.Contains(err.Error(), tt.token) {
				t.Error("the error quotes the token")
			}
		})
	}
}

func TestLeeway(t *testing.T) {
	now := time.Now()
	v := paneltoken.NewVerifier(keys)
	tok := sign(t, newKey, paneltoken.Claims{Sandbox: sid, Port: 1, Gen: 1, IssuedAt: now.Add(-time.Hour), Expires: now.Add(-2 * time.Second)})
	if _, err := v.Verify(tok); err != nil {
		t.Errorf("two seconds over: %v", err)
	}
}

func TestSignerWantsOurIssuer(t *testing.T) {
	if _, err := paneltoken.NewSigner(keyfile.Keys{plexKey}); err == nil {
		t.Error("a foreign key signs")
	}
}
