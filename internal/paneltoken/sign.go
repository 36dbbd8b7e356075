package paneltoken

import (
	"fmt"

	"github.com/golang-jwt/jwt/v5"

	"github.com/cubeplexai/cubepod/internal/keyfile"
)

// Signer makes tokens with one key.
type Signer struct{ key keyfile.Key }

// NewSigner returns a Signer for the first key of ks that has a secret. It must
// be one of CubePod's own issuer.
func NewSigner(ks keyfile.Keys) (*Signer, error) {
	k := ks.Signing()
	if k.Secret == nil {
		return nil, fmt.Errorf("panel key %q is a public one, and no other has a secret to sign with", k.ID)
	}
	if issuerOf(k) != Issuer {
		return nil, fmt.Errorf("panel key %q is for issuer %q: the first secret signs and has no iss=", k.ID, k.Issuer)
	}
	return &Signer{key: k}, nil
}

// Sign makes a token that says c. Issuer is set by the Signer.
func (s *Signer) Sign(c Claims) (string, error) {
	w := &wire{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer:    Issuer,
			IssuedAt:  jwt.NewNumericDate(c.IssuedAt),
			ExpiresAt: jwt.NewNumericDate(c.Expires),
		},
		Sandbox: c.Sandbox,
		Port:    c.Port,
		Gen:     c.Gen,
		Mode:    c.Mode,
	}
	c.Issuer = Issuer
	if err := c.validate(); err != nil {
		return "", fmt.Errorf("sign panel token: %w", err)
	}
	t := jwt.NewWithClaims(jwt.SigningMethodHS256, w)
	t.Header["kid"] = s.key.ID
	return t.SignedString(s.key.Secret)
}
