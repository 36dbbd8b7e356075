package x11

// Core request opcodes.
const (
	opChangeWindow   = 2
	opInternAtom     = 16
	opGetProperty    = 20
	opGetImage       = 73
	opQueryExtension = 98
)

// HasWindowManager reports whether a window manager looks after the screen: it
// has made the window that the _NET_SUPPORTING_WM_CHECK property of the root
// names, and the window is still there.
func (c *Conn) HasWindowManager() (bool, error) {
	atom, err := c.atom("_NET_SUPPORTING_WM_CHECK")
	if err != nil {
		return false, err
	}
	window, err := c.windowProperty(c.root, atom)
	if err != nil || window == 0 {
		return false, err
	}
	// A manager that was killed leaves the root's property behind, but its
	// own window is gone with its connection.
	self, err := c.windowProperty(window, atom)
	if err != nil {
		return false, nil //nolint:nilerr // BadWindow is the answer "none"
	}
	return self == window, nil
}

// AwaitWindowManager returns when a window manager looks after the screen, or
// with an error when the connection's deadline has passed.
func (c *Conn) AwaitWindowManager() error {
	const eventMask, propertyChange = 0x800, 0x400000
	if err := c.send(opChangeWindow, 0, words(c.root, eventMask, propertyChange)); err != nil {
		return err
	}
	for {
		ok, err := c.HasWindowManager()
		if ok || err != nil {
			return err
		}
		// Events that the check skipped are older than its answer, so the
		// change it did not see is still to come.
		if _, err := c.packet(); err != nil {
			return err
		}
	}
}

// atom is the number of an atom.
func (c *Conn) atom(name string) (uint32, error) {
	r, err := c.call(opInternAtom, 0, counted(name))
	if err != nil {
		return 0, err
	}
	return order.Uint32(r[8:]), nil
}

// windowProperty reads a property that holds one window, or gives 0.
func (c *Conn) windowProperty(window, property uint32) (uint32, error) {
	const atomWindow = 33
	r, err := c.call(opGetProperty, 0, words(window, property, atomWindow, 0, 1))
	if err != nil || order.Uint32(r[16:]) != 1 || len(r) < 36 {
		return 0, err
	}
	return order.Uint32(r[32:]), nil
}
