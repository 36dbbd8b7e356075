package main

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cubeplexai/cubepod/internal/keyfile"
	"github.com/cubeplexai/cubepod/sessionapi"
)

// secrets are all keys of the program. The API's are read by who follows their
// file.
type secrets struct {
	sessionapi.Keys
	api *sessionapi.APIKeys
	// apiPath is where api is from.
	apiPath string
}

// loadSecrets reads the key files. With an embedded Redis those that no flag
// names are under the data directory, and made when they are not there: nobody
// shares them.
func loadSecrets(c *Config) (secrets, error) {
	var s secrets
	dir := filepath.Join(c.Data, "keys")
	for _, k := range []struct {
		flag, path, name, kid string
		keys                  *keyfile.Keys
		load                  func(path string) (keyfile.Keys, error)
		ensure                func(path, kid string) (keyfile.Keys, error)
	}{
		{"--master-key", c.MasterKey, "master", "m1", &s.Master, keyfile.Load, keyfile.Ensure},
		{"--tunnel-key", c.TunnelKey, "tunnel", "t1", &s.Tunnel, keyfile.Load, keyfile.Ensure},
		// The edges' file will do, in which other issuers may have public keys.
		{"--panel-keys", c.PanelKeys, "panel", "p1", &s.Panel, keyfile.LoadVerifying, keyfile.EnsureVerifying},
	} {
		var err error
		if k.path != "" {
			*k.keys, err = k.load(k.path)
		} else {
			*k.keys, err = k.ensure(filepath.Join(dir, k.name), k.kid)
		}
		if err != nil {
			return s, fmt.Errorf("%s: %w", k.flag, err)
		}
	}
	path := c.APIKeys
	if path == "" {
		path = filepath.Join(dir, "api")
		if err := ensureAdminKey(path, filepath.Join(dir, "admin-key")); err != nil {
			return s, fmt.Errorf("make API key: %w", err)
		}
	}
	s.api, s.apiPath = new(sessionapi.APIKeys), path
	return s, nil
}

// ensureAdminKey makes an administrator's key and the file of its hash, unless
// that file is there. The data directory's lock keeps others out.
func ensureAdminKey(hashes, plain string) error {
	if _, err := os.Stat(hashes); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	key := "cp_" + rand.Text()
	if err := writeFile(plain, key+"\n"); err != nil {
		return err
	}
	// The hash comes last: a crash before it makes a new pair the next time.
	return writeFile(hashes, fmt.Sprintf("admin sha256:%x admin\n", sha256.Sum256([]byte(key))))
}

// writeFile puts content at path whole, for the owner only.
func writeFile(path, content string) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".key-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(content)
	if err := errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
