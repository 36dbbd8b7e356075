package paneltoken

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash"
	"sync"

	"github.com/cubeplexai/cubepod/internal/keyfile"
)

// The algorithms. Each key has one, and a token's own word only chooses among
// the keys of that one: a public key is never taken for a secret.
const (
	algHS256 = "HS256"
	algEdDSA = "EdDSA"
)

// verifyKey is one key, ready for use.
type verifyKey struct {
	id, issuer, alg string
	public          ed25519.PublicKey
	macs            sync.Pool // of hash.Hash: setting one up costs more than using it
}

func newVerifyKey(k keyfile.Key) *verifyKey {
	vk := &verifyKey{id: k.ID, issuer: issuerOf(k), alg: algHS256}
	if k.Public != nil {
		vk.alg, vk.public = algEdDSA, k.Public
		return vk
	}
	vk.macs.New = func() any { return hmac.New(sha256.New, k.Secret) }
	return vk
}

// verify reports whether k signed j.
func (k *verifyKey) verify(s *scratch, j jws) bool {
	if k.public != nil {
		return len(j.signature) == ed25519.SignatureSize && ed25519.Verify(k.public, j.signed, j.signature)
	}
	mac := k.macs.Get().(hash.Hash)
	defer k.macs.Put(mac)
	mac.Reset()
	mac.Write(j.signed)
	return hmac.Equal(mac.Sum(s.sum[:0]), j.signature)
}

// jws is a token taken apart, RFC 7515 §7.1. Its parts live in a scratch.
type jws struct {
	header             []byte // encoded
	signed             []byte // header and payload, as they were signed
	payload, signature []byte
	alg                string
	kid                []byte // nil without one
}

// scratch is the memory for one token at a time, used again and again.
type scratch struct {
	token   [MaxLength]byte
	decoded [MaxLength]byte
	sum     [sha256.Size]byte
	header  header
	claims  wireClaims
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// header is what counts of a token's header.
type header struct{ alg, kid text }

var errMalformed = errors.New("malformed")

// strictBase64 refuses a second spelling of the same bytes.
var strictBase64 = base64.RawURLEncoding.Strict()

// knownHeader is the header of a good token. All tokens of a key begin alike.
type knownHeader struct {
	encoded, alg string
	kid          []byte
}

// split takes token apart and reads its header, unless it is the one of last.
func (s *scratch) split(token string, last *knownHeader) (jws, error) {
	b := s.token[:copy(s.token[:], token)]
	head, rest, ok := bytes.Cut(b, []byte{'.'})
	body, sig, ok2 := bytes.Cut(rest, []byte{'.'})
	if !ok || !ok2 || bytes.ContainsAny(b, "\r\n") { // which base64 would skip
		return jws{}, errMalformed
	}
	j := jws{header: head, signed: b[:len(head)+1+len(body)]}
	to := s.decoded[:]
	var raw []byte
	for _, part := range []struct {
		from []byte
		out  *[]byte
	}{{head, &raw}, {body, &j.payload}, {sig, &j.signature}} {
		n, err := strictBase64.Decode(to, part.from)
		if err != nil {
			return jws{}, errMalformed
		}
		*part.out, to = to[:n], to[n:]
	}
	if last != nil && string(head) == last.encoded {
		j.alg, j.kid = last.alg, last.kid
		return j, nil
	}
	return j, s.header.read(raw, &j)
}

// read reads a header into j.
func (h *header) read(raw []byte, j *jws) error {
	h.alg.reset()
	h.kid.reset()
	if err := members(raw, func(key, value []byte) error {
		switch string(key) {
		case "alg":
			return h.alg.read(value)
		case "kid":
			return h.kid.read(value)
		case "crit":
			return errors.New("it has critical extensions") // the reader has to know them, and we know none
		}
		return nil
	}); err != nil {
		return err
	}
	if h.kid.set {
		j.kid = append([]byte{}, h.kid.bytes...) // not nil, were it empty
	}
	switch string(h.alg.bytes) {
	case algHS256:
		j.alg = algHS256
	case algEdDSA:
		j.alg = algEdDSA
	default:
		return errors.New("its algorithm is not one of ours")
	}
	return nil
}
