package x11

import "slices"

// Above the keys of a plain PC keyboard, up to some at the end, are media and
// launcher keys, and at 203 to 207 those that carry modifiers.
var extraKeys = [][2]int{{136, 202}, {208, 247}}

// browserKeys are those of the extra keys that a browser knows by their code,
// like the one for "back": whatever symbol they have, they type nothing.
var browserKeys = []int{147, 148, 150, 151, 163, 164, 165, 166, 167, 179, 180, 181, 182, 183, 184, 198, 208, 225}

// FreeKeys takes the symbols off the keys that no keyboard in a sandbox has. A
// VNC server needs a free key for each character that the layout has no key for,
// and with the layout of Xvfb finds less than twenty.
func (c *Conn) FreeKeys() error {
	const (
		changeKeyboardMapping = 100
		getInputFocus         = 43
		noSymbol, voidSymbol  = 0, 0xffffff // free, and taken
	)
	for _, r := range extraKeys {
		var symbols []uint32
		for key := r[0]; key <= r[1]; key++ {
			symbol := uint32(noSymbol)
			if slices.Contains(browserKeys, key) {
				symbol = voidSymbol
			}
			symbols = append(symbols, symbol)
		}
		const perKey = 1
		body := append([]byte{byte(r[0]), perKey, 0, 0}, words(symbols...)...)
		if err := c.send(changeKeyboardMapping, byte(len(symbols)), body); err != nil {
			return err
		}
	}
	_, err := c.call(getInputFocus, 0, nil) // it has an answer, which is all it is for
	return err
}
