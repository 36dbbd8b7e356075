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

// HashPrefix begins a line of podd's token file that holds no token but the
// hex of its SHA-256.
const HashPrefix = "sha256:"

// TokenFile is the content of a token file for podd: the full token's hash and
// the tunnel token's. Root of the guest can read the file, and so can a command
// that is run as root: a hash tells it nothing, since a token is too long to be
// guessed.
func TokenFile(full, tunnel string) string { return hashed(full) + "\n" + hashed(tunnel) + "\n" }

func hashed(token string) string {
	sum := sha256.Sum256([]byte(token))
	return HashPrefix + hex.EncodeToString(sum[:])
}

// Token derives the token of one sandbox and incarnation: lower-case hex of
// HMAC-SHA256 under the master key (Full) or the tunnel key (Tunnel). Nothing
// stores it.
func Token(key []byte, scope Scope, sandbox string, incarnation int64) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("cubepod podd v1\n" + string(scope) + "\n" + sandbox + "\n" + strconv.FormatInt(incarnation, 10)))
	return hex.EncodeToString(mac.Sum(nil))
}
