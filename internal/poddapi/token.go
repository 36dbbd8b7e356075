package poddapi

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// Scope says what a podd token is good for.
type Scope string

const (
	// Full opens every call.
	Full Scope = "full"
	// Tunnel opens GET /v1/ports/{port}/tunnel only.
	Tunnel Scope = "tunnel"
)

// Token derives the token of one sandbox and incarnation: lower-case hex of
// HMAC-SHA256 under the master key (Full) or the tunnel key (Tunnel). Nothing
// stores it.
func Token(key []byte, scope Scope, sandbox string, incarnation int64) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("cubepod podd v1\n" + string(scope) + "\n" + sandbox + "\n" + strconv.FormatInt(incarnation, 10)))
	return hex.EncodeToString(mac.Sum(nil))
}
