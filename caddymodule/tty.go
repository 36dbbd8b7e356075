package caddymodule

// ttyClient follows what the client of the terminal says, in ttyd's protocol:
// a message is a type and its data.
//
//	'{' … the whole message is JSON, and comes first
//	'0' input   '1' size   '2' stop sending   '3' go on
//
// Lookers-on have a part in the first message only. Not even '2' passes: where
// all viewers share a shell, it may hold up the others.
type ttyClient struct {
	view bool

	begun bool // the first message has come
	kind  byte // of the message at hand
	first []byte
}

// maxFirstMessage bounds the first message of a looker-on.
const maxFirstMessage = 4096

func (c *ttyClient) judge(dst, p []byte, start, end bool) (out []byte, input bool, err error) {
	if len(p) == 0 && start {
		return dst, false, nil // an empty message has no type
	}
	if start {
		c.kind = p[0]
		opening := !c.begun && c.kind == '{'
		c.begun = true
		switch {
		case opening:
			c.first = []byte{}
		case c.kind < '0' || c.kind > '3':
			if c.view {
				return dst, false, errViewOnly
			}
		}
	}
	if c.first == nil {
		return dst, !c.view && len(p) > 0 && c.kind == '0', nil
	}
	if !c.view {
		if end {
			c.first = nil
		}
		return dst, false, nil
	}
	if c.first = append(c.first, p...); len(c.first) > maxFirstMessage {
		return dst, false, errViewOnly
	}
	if end {
		dst = append(dst, c.first...)
		c.first = nil
	}
	return dst, false, nil
}
