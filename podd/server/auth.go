package server

import (
	"bufio"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
)

// Tokens are the two secrets that open podd, as hashes.
type Tokens struct {
	full, tunnel hash
	hasTunnel    bool
	set          bool
}

type hash = [sha256.Size]byte

// NewTokens returns Tokens of a full token, which opens every call, and a
// tunnel token, which opens tunnels only and may be empty.
func NewTokens(full, tunnel string) Tokens {
	return Tokens{full: sha256.Sum256([]byte(full)), tunnel: sha256.Sum256([]byte(tunnel)), hasTunnel: tunnel != "", set: true}
}

// ReadTokens reads the file at path: the full token in its first line, the
// tunnel token in its second, if any, each as it is or as "sha256:" and its
// hash. A secret has no other way in: an environment can be read by the commands
// podd runs.
func ReadTokens(path string) (Tokens, error) {
	f, err := os.Open(path)
	if err != nil {
		return Tokens{}, fmt.Errorf("token file: %w", err)
	}
	defer f.Close()
	var line [2]string
	sc := bufio.NewScanner(f)
	for i := range line {
		if sc.Scan() {
			line[i] = strings.TrimSpace(sc.Text())
		}
	}
	if err := sc.Err(); err != nil {
		return Tokens{}, fmt.Errorf("token file: %w", err)
	}
	if line[0] == "" {
		return Tokens{}, errors.New("token file: its first line is empty")
	}
	t := Tokens{hasTunnel: line[1] != "", set: true}
	for i, into := range []*hash{&t.full, &t.tunnel} {
		if *into, err = hashOf(line[i]); err != nil {
			return Tokens{}, fmt.Errorf("token file: line %d: %w", i+1, err)
		}
	}
	return t, nil
}

// hashOf reads a line of a token file.
func hashOf(line string) (hash, error) {
	digits, ok := strings.CutPrefix(line, poddapi.HashPrefix)
	if !ok {
		return sha256.Sum256([]byte(line)), nil
	}
	sum, err := hex.DecodeString(digits)
	if err != nil || len(sum) != sha256.Size {
		return hash{}, fmt.Errorf("%q is not followed by the hex of a hash", poddapi.HashPrefix)
	}
	return hash(sum), nil
}

// access is what a call asks of its caller.
type access int

const (
	full access = iota
	anyToken
	open
)

// check decides by constant-time comparison whether r may do what asks for
// need.
func (t Tokens) check(r *http.Request, need access) error {
	if !t.set || need == open {
		return nil
	}
	shown, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || shown == "" {
		return apierror.New(apierror.Unauthorized, "", "podd wants its token as Authorization: Bearer")
	}
	sum := sha256.Sum256([]byte(shown))
	isFull := subtle.ConstantTimeCompare(sum[:], t.full[:]) == 1
	isTunnel := subtle.ConstantTimeCompare(sum[:], t.tunnel[:]) == 1 && t.hasTunnel
	switch {
	case isFull, isTunnel && need == anyToken:
		return nil
	case isTunnel:
		return apierror.New(apierror.Forbidden, "tunnel_token", "this token opens tunnels only")
	}
	return apierror.New(apierror.Unauthorized, "", "that is not podd's token")
}
