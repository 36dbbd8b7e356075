package caddymodule

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/cubeplexai/cubepod/internal/keyfile"
	"github.com/cubeplexai/cubepod/internal/paneltoken"
)

// keysEvery is how often the key files are looked at.
const keysEvery = 2 * time.Second

// keyring holds the keys of the two files and follows the files: a key is
// rotated without a reload. It compares contents, not times, so that neither a
// rename nor a write within the clock's grain is missed. What is there but
// cannot be used changes nothing: the keys that worked stay.
type keyring struct {
	logger *zap.Logger
	panel  keyFile[*paneltoken.Verifier]
	tunnel keyFile[keyfile.Keys]

	end  context.CancelFunc
	work sync.WaitGroup
}

// keyFile is one file and what was made of it.
type keyFile[T any] struct {
	name, path string
	parse      func([]byte) (T, error)
	current    atomic.Pointer[T]

	content []byte // as last seen, good or not
	failed  bool   // it could not be read
}

func newKeyring(panel, tunnel string, logger *zap.Logger) (*keyring, error) {
	k := &keyring{logger: logger}
	k.panel.name, k.panel.path = "panel_keys", panel
	k.panel.parse = func(b []byte) (*paneltoken.Verifier, error) {
		keys, err := keyfile.ParseVerifying(bytes.NewReader(b))
		if err != nil {
			return nil, err
		}
		return paneltoken.NewVerifier(keys), nil
	}
	k.tunnel.name, k.tunnel.path = "tunnel_key", tunnel
	k.tunnel.parse = func(b []byte) (keyfile.Keys, error) { return keyfile.Parse(bytes.NewReader(b)) }
	if _, err := k.panel.load(); err != nil {
		return nil, err
	}
	if _, err := k.tunnel.load(); err != nil {
		return nil, err
	}
	return k, nil
}

func (k *keyring) verifier() *paneltoken.Verifier { return *k.panel.current.Load() }

func (k *keyring) tunnelKeys() keyfile.Keys { return *k.tunnel.current.Load() }

// start follows the files until stop is called. It calls news when there are
// other panel keys.
func (k *keyring) start(news func()) {
	ctx, cancel := context.WithCancel(context.Background())
	k.end = cancel
	k.work.Go(func() {
		tick := time.NewTicker(keysEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if reload(k.logger, &k.panel) {
					news()
				}
				reload(k.logger, &k.tunnel)
			case <-ctx.Done():
				return
			}
		}
	})
}

// stop ends following the files and waits for it. The keys stay.
func (k *keyring) stop() {
	if k.end != nil {
		k.end()
	}
	k.work.Wait()
}

// reload reads f's file again. It reports whether there is something new that
// can be used.
func reload[T any](logger *zap.Logger, f *keyFile[T]) bool {
	switch changed, err := f.load(); {
	case err != nil && changed:
		logger.Warn("key file cannot be used, the keys stay as they were", zap.String("file", f.path), zap.Error(err))
	case changed:
		logger.Info("keys were read again", zap.String("file", f.path))
		return true
	}
	return false
}

// load reads the file. It reports whether there was news, good or bad.
func (f *keyFile[T]) load() (changed bool, err error) {
	content, err := os.ReadFile(f.path)
	if err != nil {
		changed, f.failed = !f.failed, true
		return changed, fmt.Errorf("%s: %w", f.name, err)
	}
	if f.current.Load() != nil && bytes.Equal(content, f.content) {
		changed, f.failed = f.failed, false // it may have been away for a while
		return changed, nil
	}
	f.content, f.failed = content, false
	v, err := f.parse(content)
	if err != nil {
		return true, fmt.Errorf("%s: key file %s: %w", f.name, f.path, err)
	}
	f.current.Store(&v)
	return true, nil
}
