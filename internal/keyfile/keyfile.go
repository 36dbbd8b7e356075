// Package keyfile reads the files that hold CubePod's keys. Master, tunnel and
// panel keys share one format, a key on each line:
//
//	kid base64:<at least 32 bytes> [iss=NAME]
//
// The first key signs, all of them verify. Empty lines and lines that start
// with # are skipped. "iss=" is for panel keys only.
//
// Among panel keys a line may instead hold the public half of an Ed25519 key, in
// base64 of its 32 bytes: it only verifies. Who has a file of such lines can
// make no token.
//
//	kid ed25519:<public key> [iss=NAME]
package keyfile

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// MinSecret is the least number of bytes a secret has.
const MinSecret = 32

// Key is one line of a key file.
type Key struct {
	ID string
	// Secret is of a symmetric key, Public of one that only verifies. A key has
	// one of them.
	Secret []byte
	Public ed25519.PublicKey
	// Issuer is the value of "iss=", empty when the line has none.
	Issuer string
}

// Keys are the keys of one file, in its order. There is at least one.
type Keys []Key

// Signing is the key that makes new tokens: the first that has a secret. Where
// none has, it is the first, which then cannot.
func (ks Keys) Signing() Key {
	for _, k := range ks {
		if k.Secret != nil {
			return k
		}
	}
	return ks[0]
}

// Find gives the key called id.
func (ks Keys) Find(id string) (Key, bool) {
	for _, k := range ks {
		if k.ID == id {
			return k, true
		}
	}
	return Key{}, false
}

var idPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// Load reads the file at path, in which every key has a secret.
func Load(path string) (Keys, error) { return load(path, Parse) }

// LoadVerifying reads the file at path, of panel keys: some or all of them may
// be public ones.
func LoadVerifying(path string) (Keys, error) { return load(path, ParseVerifying) }

func load(path string, parse func(io.Reader) (Keys, error)) (Keys, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read key file: %w", err)
	}
	ks, err := parse(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("key file %s: %w", path, err)
	}
	return ks, nil
}

// Parse reads keys from r, each with a secret. Its errors name the line and
// never quote a secret.
func Parse(r io.Reader) (Keys, error) { return parse(r, false) }

// ParseVerifying is like [Parse] and takes public keys too.
func ParseVerifying(r io.Reader) (Keys, error) { return parse(r, true) }

func parse(r io.Reader, public bool) (Keys, error) {
	var ks Keys
	sc := bufio.NewScanner(r)
	for n := 1; sc.Scan(); n++ {
		line := strings.TrimSpace(sc.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		k, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if k.Public != nil && !public {
			return nil, fmt.Errorf("line %d: a public key only verifies, here a secret is needed", n)
		}
		if _, ok := ks.Find(k.ID); ok {
			return nil, fmt.Errorf("line %d: key id %q is there twice", n, k.ID)
		}
		ks = append(ks, k)
	}
	if err := sc.Err(); err != nil {
		return nil, err
	}
	if len(ks) == 0 {
		return nil, errors.New("no key in it")
	}
	return ks, nil
}

func parseLine(line string) (Key, error) {
	f := strings.Fields(line)
	if len(f) < 2 || len(f) > 3 {
		return Key{}, errors.New(`want "kid base64:<secret> [iss=NAME]"`)
	}
	if !idPattern.MatchString(f[0]) {
		return Key{}, errors.New("a key id has 1 to 64 of A-Z a-z 0-9 . _ -")
	}
	k := Key{ID: f[0]}
	kind, enc, _ := strings.Cut(f[1], ":")
	value, err := base64.StdEncoding.DecodeString(enc)
	switch {
	case kind != "base64" && kind != "ed25519":
		return Key{}, errors.New(`the secret does not start with "base64:"`)
	case err != nil && kind == "base64":
		return Key{}, errors.New("the secret is not base64")
	case err != nil || kind == "ed25519" && len(value) != ed25519.PublicKeySize:
		return Key{}, fmt.Errorf("the public key is not base64 of %d bytes", ed25519.PublicKeySize)
	case kind == "ed25519":
		k.Public = value
	case len(value) < MinSecret:
		return Key{}, fmt.Errorf("the secret has %d bytes, want at least %d", len(value), MinSecret)
	default:
		k.Secret = value
	}
	if len(f) == 3 {
		var ok bool
		if k.Issuer, ok = strings.CutPrefix(f[2], "iss="); !ok || k.Issuer == "" {
			return Key{}, errors.New(`the third word is not "iss=NAME"`)
		}
	}
	return k, nil
}

// Ensure loads the file at path and, where there is none, first makes it with
// one random key called id, readable by its owner only. Callers that race get
// the same key.
func Ensure(path, id string) (Keys, error) { return ensure(path, id, Load) }

// EnsureVerifying is to [Ensure] what [LoadVerifying] is to [Load].
func EnsureVerifying(path, id string) (Keys, error) { return ensure(path, id, LoadVerifying) }

func ensure(path, id string, load func(string) (Keys, error)) (Keys, error) {
	ks, err := load(path)
	if !errors.Is(err, os.ErrNotExist) {
		return ks, err
	}
	secret := make([]byte, MinSecret)
	rand.Read(secret) // never fails, see crypto/rand
	line := id + " base64:" + base64.StdEncoding.EncodeToString(secret) + "\n"
	if err := writeNew(path, line); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("make key file: %w", err)
	}
	return load(path)
}

// writeNew makes a file that appears with its content, or not at all; it
// reports [os.ErrExist] when there is one already.
func writeNew(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".key-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(content)
	if err := errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Link(tmp.Name(), path)
}
