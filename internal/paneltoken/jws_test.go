package paneltoken_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
)

// hs256 signs a token as a program that knows nothing of CubePod's code would.
func hs256(secret []byte, header, claims string) string {
	enc := base64.RawURLEncoding.EncodeToString
	s := enc([]byte(header)) + "." + enc([]byte(claims))
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(s))
	return s + "." + enc(mac.Sum(nil))
}
