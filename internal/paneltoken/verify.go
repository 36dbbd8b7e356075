package paneltoken

import (
	"errors"
	"fmt"

	"github.com/golang-jwt/jwt/v5"

	"github.com/cubeplexai/cubepod/internal/keyfile"
)

// What Verify says of a token it refuses. Neither says more to a client.
var (
	// ErrExpired is a good token whose time is over.
	ErrExpired = errors.New("panel token expired")
	// ErrInvalid is everything else.
	ErrInvalid = errors.New("panel token invalid")
)

// Verifier checks tokens against a set of keys. It is safe for concurrent use.
type Verifier struct {
	keys   keyfile.Keys
	parser *jwt.Parser
}

// NewVerifier returns a Verifier that accepts what any of ks signed.
func NewVerifier(ks keyfile.Keys) *Verifier {
	return &Verifier{keys: ks, parser: jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}),
		jwt.WithExpirationRequired(),
		jwt.WithIssuedAt(),
		jwt.WithLeeway(Leeway),
	)}
}

// Verify gives the claims of a token that one of the keys signed and whose time
// is not over. Its errors are ErrExpired and ErrInvalid, wrapped; they never
// quote the token.
func (v *Verifier) Verify(token string) (Claims, error) {
	if len(token) > MaxLength {
		return Claims{}, fmt.Errorf("%w: longer than %d characters", ErrInvalid, MaxLength)
	}
	var w wire
	if _, err := v.parser.ParseWithClaims(token, &w, v.candidates); err != nil {
		if errors.Is(err, jwt.ErrTokenExpired) {
			return Claims{}, ErrExpired
		}
		return Claims{}, fmt.Errorf("%w: %s", ErrInvalid, reason(err))
	}
	c := Claims{
		Issuer:   w.Issuer,
		Sandbox:  w.Sandbox,
		Port:     w.Port,
		IssuedAt: w.IssuedAt.Time,
		Expires:  w.ExpiresAt.Time,
		Gen:      w.Gen,
		Mode:     w.Mode,
	}
	if c.Mode == "" {
		c.Mode = Control
	}
	return c, nil
}

// candidates are the keys that may have signed t: those of its issuer and, when
// it has a kid, of that id. Both are the token's own word, so they only choose
// among keys and grant nothing.
func (v *Verifier) candidates(t *jwt.Token) (any, error) {
	iss := t.Claims.(*wire).Issuer
	kid, hasKid := t.Header["kid"]
	var set jwt.VerificationKeySet
	for _, k := range v.keys {
		if issuerOf(k) == iss && (!hasKid || k.ID == kid) {
			set.Keys = append(set.Keys, k.Secret)
		}
	}
	if len(set.Keys) == 0 {
		return nil, errors.New("no key for its issuer and kid")
	}
	return set, nil
}

// reason names the class of a parser error: the error itself can quote parts of
// the token.
func reason(err error) string {
	for _, class := range []error{jwt.ErrTokenMalformed, jwt.ErrTokenUnverifiable, jwt.ErrTokenSignatureInvalid, jwt.ErrTokenUsedBeforeIssued, jwt.ErrTokenInvalidClaims} {
		if errors.Is(err, class) {
			return class.Error()
		}
	}
	return "refused"
}
