// Package paneltoken makes and checks panel tokens: the compact JWS in a panel
// URL that says who may reach which port of which sandbox until when.
//
// Tokens are HS256 with a "kid". Several keys verify and one signs, so a key is
// rotated by adding the new one first to every verifier, then to the signers.
// Each key verifies tokens of its own issuer only. Who only verifies may have
// public keys too, for EdDSA tokens that another program makes.
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

// wire is the JSON form of Claims when a token is made.
type wire struct {
	jwt.RegisteredClaims
	Sandbox string `json:"sid"`
	Port    int    `json:"port"`
	Gen     int64  `json:"gen,omitempty"`
	Mode    Mode   `json:"mode,omitempty"`
}

// wireClaims are the claims as a token has them, with memory to use again.
type wireClaims struct {
	issuer, sandbox, mode                   text
	port, gen, issuedAt, expires, notBefore number
}

// read reads the payload of a token whose signature is good. Its errors quote
// nothing of it.
func (w *wireClaims) read(payload []byte) error {
	w.issuer.reset()
	w.sandbox.reset()
	w.mode.reset()
	w.port, w.gen, w.issuedAt, w.expires, w.notBefore = number{}, number{}, number{}, number{}, number{}
	return members(payload, func(key, value []byte) error {
		switch string(key) {
		case "iss":
			return w.issuer.read(value)
		case "sid":
			return w.sandbox.read(value)
		case "mode":
			return w.mode.read(value)
		case "port":
			return w.port.read(value)
		case "gen":
			return w.gen.read(value)
		case "iat":
			return w.issuedAt.read(value)
		case "exp":
			return w.expires.read(value)
		case "nbf":
			return w.notBefore.read(value)
		}
		return nil
	})
}

// claims gives what w says, and from when on it may be said.
func (w *wireClaims) claims(issuer string) (Claims, time.Time, error) {
	c := Claims{Issuer: issuer, Port: int(w.port.value), Gen: w.gen.value}
	if w.port.fraction || w.gen.fraction || w.issuedAt.fraction || w.expires.fraction || w.notBefore.fraction {
		return c, time.Time{}, errors.New("no whole number")
	}
	switch string(w.mode.bytes) {
	case "", string(Control):
		c.Mode = Control
	case string(View):
		c.Mode = View
	default:
		return c, time.Time{}, errors.New("unknown mode")
	}
	c.IssuedAt, c.Expires = w.issuedAt.time(), w.expires.time()
	from := w.notBefore.time()
	if from.Before(c.IssuedAt) {
		from = c.IssuedAt
	}
	c.Sandbox = w.sandbox.String()
	return c, from, c.validate()
}

// validate refuses claims that say too little, or too much.
func (c *Claims) validate() error {
	switch {
	case c.Sandbox == "":
		return errors.New("no sid")
	case c.Port < 1 || c.Port > 65535:
		return errors.New("port out of range")
	case c.IssuedAt.IsZero():
		return errors.New("no iat")
	case c.Expires.IsZero():
		return errors.New("no exp")
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
