package paneltoken

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cubeplexai/cubepod/internal/keyfile"
)

// What Verify says of a token it refuses. Neither says more to a client.
var (
	// ErrExpired is a good token whose time is over.
	ErrExpired = errors.New("panel token expired")
	// ErrInvalid is everything else.
	ErrInvalid = errors.New("panel token invalid")
)

// Verifier checks tokens against a set of keys. It remembers tokens it found
// good, never refused ones, and looks at the clock each time. It is safe for
// concurrent use.
type Verifier struct {
	keys []*verifyKey
	seen cache
	last atomic.Pointer[knownHeader]
}

// verified is a token with a good signature. It is never changed once made.
type verified struct {
	token  string
	claims Claims
	from   time.Time // when its time begins
}

// NewVerifier returns a Verifier that accepts what any of ks signed.
func NewVerifier(ks keyfile.Keys) *Verifier {
	v := new(Verifier)
	for _, k := range ks {
		v.keys = append(v.keys, newVerifyKey(k))
	}
	return v
}

// Verify gives the claims of a token that one of the keys signed and whose time
// is not over. Its errors are ErrExpired and ErrInvalid, wrapped; they never
// quote the token.
func (v *Verifier) Verify(token string) (Claims, error) {
	good := v.seen.get(token)
	if good == nil {
		var err error
		if good, err = v.check(token); err != nil {
			return Claims{}, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		v.seen.add(good)
	}
	now := time.Now()
	switch {
	case now.After(good.claims.Expires.Add(Leeway)):
		return Claims{}, ErrExpired
	case good.from.After(now.Add(Leeway)):
		return Claims{}, fmt.Errorf("%w: used before its time", ErrInvalid)
	}
	return good.claims, nil
}

// check verifies everything but the time. The payload is read only once its
// signature is good.
func (v *Verifier) check(token string) (*verified, error) {
	if len(token) > MaxLength {
		return nil, fmt.Errorf("longer than %d characters", MaxLength)
	}
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	last := v.last.Load()
	j, err := s.split(token, last)
	if err != nil {
		return nil, err
	}
	signed := false
	for _, k := range v.keys {
		if k.alg != j.alg || (j.kid != nil && k.id != string(j.kid)) || !k.verify(s, j) {
			continue
		}
		if !signed {
			if err := s.claims.read(j.payload); err != nil {
				return nil, err
			}
			signed = true
			if last == nil || last.encoded != string(j.header) {
				v.last.Store(&knownHeader{encoded: string(j.header), alg: j.alg, kid: bytes.Clone(j.kid)})
			}
		}
		// Two keys may share a secret; each vouches for its own issuer.
		if k.issuer == string(s.claims.issuer.bytes) {
			good := &verified{token: strings.Clone(token)} // a part of a request's line must not keep all of it
			good.claims, good.from, err = s.claims.claims(k.issuer)
			return good, err
		}
	}
	if signed {
		return nil, errors.New("the key is not its issuer's")
	}
	return nil, errors.New("no key signed it")
}
