package paneltoken

import "sync"

// cacheSize is how many tokens one generation of a cache holds: with some 700
// bytes each a full cache has 12 MiB.
const cacheSize = 8192

// cache remembers good tokens. It has two generations: once the young one is
// full it becomes the old one, and what nobody asked for since is forgotten.
type cache struct {
	mu         sync.RWMutex // guards the fields below
	young, old map[string]*verified
}

// get gives what is known of token, or nil.
func (c *cache) get(token string) *verified {
	c.mu.RLock()
	v := c.young[token]
	old := v == nil
	if old {
		v = c.old[token]
	}
	c.mu.RUnlock()
	if old && v != nil {
		c.add(v)
	}
	return v
}

func (c *cache) add(v *verified) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.young == nil || len(c.young) >= cacheSize {
		c.old, c.young = c.young, map[string]*verified{}
	}
	c.young[v.token] = v
}
