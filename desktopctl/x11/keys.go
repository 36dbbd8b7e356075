package x11

import (
	"fmt"
	"slices"
	"sync"
)

// Above the keys of a plain PC keyboard, up to some at the end, are media and
// launcher keys, and at 203 to 207 those that carry modifiers.
var extraKeys = [][2]int{{136, 202}, {208, 247}}

// browserKeys are those of the extra keys that a browser knows by their code,
// like the one for "back": whatever symbol they have, they type nothing.
var browserKeys = []int{147, 148, 150, 151, 163, 164, 165, 166, 167, 179, 180, 181, 182, 183, 184, 198, 208, 225}

const (
	noSymbol, voidSymbol = 0, 0xffffff // free, and taken

	changeKeyboardMapping = 100
	getKeyboardMapping    = 101
	getInputFocus         = 43
)

// FreeKeys takes the symbols off the keys that no keyboard in a sandbox has. A
// VNC server needs a free key for each character that the layout has no key for,
// and with the layout of Xvfb finds less than twenty.
func (c *Conn) FreeKeys() error {
	for _, r := range extraKeys {
		var symbols []uint32
		for key := r[0]; key <= r[1]; key++ {
			symbol := uint32(noSymbol)
			if slices.Contains(browserKeys, key) {
				symbol = voidSymbol
			}
			symbols = append(symbols, symbol)
		}
		if err := c.mapKeys(r[0], 1, symbols); err != nil {
			return err
		}
	}
	return c.sync()
}

// SpareKeys gives keys to symbols that the layout lacks, out of those that
// FreeKeys has freed. There are about ninety: a new symbol takes the key of the
// one that nobody has asked for longest. The zero value is ready.
type SpareKeys struct {
	mu  sync.Mutex // guards the field below
	lru []int      // the keys, those in use last
}

// Give sees to it that each symbol has a key, which types it with Shift as
// without, and says whether any had none.
func (s *SpareKeys) Give(c *Conn, symbols []uint32) (changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lru == nil {
		for _, r := range extraKeys {
			for key := r[0]; key <= r[1]; key++ {
				if !slices.Contains(browserKeys, key) {
					s.lru = append(s.lru, key)
				}
			}
		}
	}
	if len(symbols) > len(s.lru) {
		return false, fmt.Errorf("%d symbols: there are %d keys", len(symbols), len(s.lru))
	}
	has, err := c.keySymbols()
	if err != nil {
		return false, err
	}
	var lacking []uint32
	for _, symbol := range symbols {
		at := slices.IndexFunc(s.lru, func(key int) bool { return has(key, symbol) })
		if at < 0 {
			if !slices.Contains(lacking, symbol) {
				lacking = append(lacking, symbol)
			}
			continue
		}
		key := s.lru[at]
		s.lru = append(slices.Delete(s.lru, at, at+1), key)
	}
	keys := slices.Clone(s.lru[:len(lacking)])
	s.lru = append(slices.Delete(s.lru, 0, len(keys)), keys...)
	slices.Sort(keys)
	// One request for neighbours: every client reads the whole map after each.
	for len(keys) > 0 {
		n := 1
		for n < len(keys) && keys[n] == keys[0]+n {
			n++
		}
		var pairs []uint32
		for _, symbol := range lacking[:n] {
			pairs = append(pairs, symbol, symbol) // one alone would get a capital beside it
		}
		if err := c.mapKeys(keys[0], 2, pairs); err != nil {
			return true, err
		}
		keys, lacking, changed = keys[n:], lacking[n:], true
	}
	return changed, c.sync()
}

// keySymbols reads which symbols the extra keys have. has says whether a key
// types one, whether Shift is held or not.
func (c *Conn) keySymbols() (has func(key int, symbol uint32) bool, err error) {
	first, last := extraKeys[0][0], extraKeys[len(extraKeys)-1][1]
	const header = 32
	p, err := c.call(getKeyboardMapping, 0, []byte{byte(first), byte(last - first + 1), 0, 0})
	if err != nil {
		return nil, err
	}
	perKey := int(p[1])
	if len(p) < header+4*perKey*(last-first+1) {
		return nil, fmt.Errorf("keyboard mapping of %d bytes", len(p))
	}
	return func(key int, symbol uint32) bool {
		at := func(i int) uint32 { return order.Uint32(p[header+4*((key-first)*perKey+i):]) }
		return perKey > 0 && at(0) == symbol && (perKey == 1 || at(1) == symbol || at(1) == noSymbol)
	}, nil
}

// mapKeys gives neighbouring keys their symbols.
func (c *Conn) mapKeys(first, perKey int, symbols []uint32) error {
	body := append([]byte{byte(first), byte(perKey), 0, 0}, words(symbols...)...)
	return c.send(changeKeyboardMapping, byte(len(symbols)/perKey), body)
}

// sync waits until the server has done all that was sent.
func (c *Conn) sync() error {
	_, err := c.call(getInputFocus, 0, nil) // it has an answer, which is all it is for
	return err
}
