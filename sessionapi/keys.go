package sessionapi

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/session"
)

// Caller is who holds an API key.
type Caller struct {
	Name string
	// Admin may use every sandbox.
	Admin bool
}

// mayUse says no to everybody for a standby, which is nobody's.
func (c Caller) mayUse(rec *session.Record) bool {
	return rec.Standby == "" && (c.Admin || c.Name == rec.Owner)
}

// APIKeys are the keys that open the API. A line of their file is
//
//	name sha256:<hex of the key's SHA-256> [admin]
//
// Several lines with one name are one caller, so that keys can be exchanged.
// Empty lines and lines that start with # are skipped.
type APIKeys struct {
	entries atomic.Pointer[[]apiKey]
}

// Replace makes ks the keys of other, for requests from now on.
func (ks *APIKeys) Replace(other *APIKeys) { ks.entries.Store(other.entries.Load()) }

type apiKey struct {
	caller Caller
	sum    [sha256.Size]byte
}

var callerPattern = regexp.MustCompile(`^[A-Za-z0-9._@-]{1,64}$`)

// LoadAPIKeys reads the file at path.
func LoadAPIKeys(path string) (*APIKeys, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read API keys: %w", err)
	}
	ks, err := ParseAPIKeys(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("API keys %s: %w", path, err)
	}
	return ks, nil
}

// ParseAPIKeys reads keys from r.
func ParseAPIKeys(r io.Reader) (*APIKeys, error) {
	var entries []apiKey
	sc := bufio.NewScanner(r)
	for n := 1; sc.Scan(); n++ {
		f := strings.Fields(sc.Text())
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		k, err := parseAPIKey(f)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		entries = append(entries, k)
	}
	if err := sc.Err(); err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, errors.New("no key in it")
	}
	ks := &APIKeys{}
	ks.entries.Store(&entries)
	return ks, nil
}

func parseAPIKey(f []string) (apiKey, error) {
	var k apiKey
	if len(f) < 2 || len(f) > 3 || len(f) == 3 && f[2] != "admin" {
		return k, errors.New(`want "name sha256:<hex> [admin]"`)
	}
	if !callerPattern.MatchString(f[0]) {
		return k, errors.New("a name has 1 to 64 of A-Z a-z 0-9 . _ @ -")
	}
	enc, ok := strings.CutPrefix(f[1], "sha256:")
	sum, err := hex.DecodeString(enc)
	if !ok || err != nil || len(sum) != sha256.Size {
		return k, errors.New(`the second word is not "sha256:" and 64 hex digits`)
	}
	k.caller = Caller{Name: f[0], Admin: len(f) == 3}
	copy(k.sum[:], sum)
	return k, nil
}

// Caller gives who sent r, by the key in X-API-Key or Authorization: Bearer.
func (ks *APIKeys) Caller(r *http.Request) (Caller, error) {
	key := r.Header.Get("X-API-Key")
	if key == "" {
		key = bearer(r)
	}
	if key == "" {
		return Caller{}, apierror.New(apierror.Unauthorized, "", "an API key is needed, in X-API-Key or Authorization: Bearer")
	}
	sum := sha256.Sum256([]byte(key))
	var found *apiKey
	entries := *ks.entries.Load()
	for i := range entries { // all of them, whichever matches
		if subtle.ConstantTimeCompare(entries[i].sum[:], sum[:]) == 1 {
			found = &entries[i]
		}
	}
	if found == nil {
		return Caller{}, apierror.New(apierror.Unauthorized, "", "the API key is not known here")
	}
	return found.caller, nil
}

func bearer(r *http.Request) string {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
