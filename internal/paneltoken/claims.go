// Package paneltoken makes and checks panel tokens: the compact JWS in a panel
// URL that says who may reach which port of which sandbox until when.
//
// Tokens are HS256 with a "kid". Several keys verify and one signs, so a key is
// rotated by adding the new one first to every verifier, then to the signers.
// Each key verifies tokens of its own issuer only.
package paneltoken

import (
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/cubeplexai/cubepod/internal/keyfile"
)

// Issuer is the "iss" of CubePod's own tokens, and of keys that name no other.
const Issuer = "cubepod"

// Leeway is by how much clocks may differ.
const Leeway = 5 * time.Second

// MaxLength bounds a token that is looked at; ours have about 300 characters.
const MaxLength = 4096

// Mode says what the bearer may do.
type Mode string

const (
	// Control is everything, and the default.
	Control Mode = "control"
	// View is looking on: for the viewer and the terminal only, enforced by
	// the edge.
	View Mode = "view"
)

// Claims are what a valid token says.
type Claims struct {
	Issuer   string
	Sandbox  string // the sandbox's id, "sid"
	Port     int    // the guest's port
	IssuedAt time.Time
	Expires  time.Time
	// Gen is the sandbox's generation when the token was made. It is 0 in
	// tokens of other programs, which are not checked against it.
	Gen  int64
	Mode Mode
}

// wire is the JSON form of Claims.
type wire struct {
	jwt.RegisteredClaims
	Sandbox string `json:"sid"`
	Port    int    `json:"port"`
	Gen     int64  `json:"gen,omitempty"`
	Mode    Mode   `json:"mode,omitempty"`
}

// Validate is called by the parser after the signature was checked.
func (c *wire) Validate() error {
	switch {
	case c.Sandbox == "":
		return errors.New("no sid")
	case c.Port < 1 || c.Port > 65535:
		return errors.New("port out of range")
	case c.IssuedAt == nil:
		return errors.New("no iat")
	case c.Gen < 0, c.Gen == 0 && c.Issuer == Issuer:
		return errors.New("no gen")
	case c.Mode != "" && c.Mode != Control && c.Mode != View:
		return fmt.Errorf("unknown mode %q", c.Mode)
	}
	return nil
}

func issuerOf(k keyfile.Key) string {
	if k.Issuer == "" {
		return Issuer
	}
	return k.Issuer
}
