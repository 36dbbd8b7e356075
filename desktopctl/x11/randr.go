package x11

import (
	"errors"
	"fmt"
)

// RANDR minor opcodes.
const (
	rrGetScreenSizeRange = 6
	rrSetScreenSize      = 7
	rrGetScreenResources = 8
	rrCreateMode         = 16
	rrAddOutputMode      = 18
	rrSetCrtcConfig      = 21
)

// resources is what RRGetScreenResources tells of a screen.
type resources struct {
	timestamp uint32
	crtcs     []uint32
	outputs   []uint32
	modes     map[string]uint32 // by name
}

// SetSize gives the screen another size, at most the size the server was
// started with. Clients see it at once: a maximised window follows.
func (c *Conn) SetSize(width, height int) error {
	if width == c.width && height == c.height {
		return nil
	}
	if err := c.setSize(uint32(width), uint32(height)); err != nil {
		return fmt.Errorf("resize screen to %dx%d: %w", width, height, err)
	}
	c.width, c.height = width, height
	return nil
}

func (c *Conn) setSize(width, height uint32) error {
	r, err := c.call(opQueryExtension, 0, counted("RANDR"))
	if err != nil {
		return err
	}
	if r[8] == 0 {
		return errors.New("the server has no RANDR")
	}
	randr := r[9]
	// Checked first: half a change would leave the screen without output.
	r, err = c.call(randr, rrGetScreenSizeRange, words(c.root))
	if err != nil {
		return err
	}
	if maxW, maxH := order.Uint16(r[12:]), order.Uint16(r[14:]); width > uint32(maxW) || height > uint32(maxH) {
		return fmt.Errorf("the largest is %dx%d", maxW, maxH)
	}
	res, err := c.screenResources(randr)
	if err != nil {
		return err
	}
	crtc, output := res.crtcs[0], res.outputs[0]
	mode, err := c.mode(randr, res, output, width, height)
	if err != nil {
		return err
	}
	// The order matters: a screen may not be smaller than a CRTC that is on.
	if err := c.configure(randr, res, crtc, 0, nil); err != nil {
		return err
	}
	// Millimetres such that the resolution stays 96 dots per inch.
	const tenthsOfMillimetre, dpi = 254, 96
	mm := func(px uint32) uint32 { return px * tenthsOfMillimetre / (dpi * 10) }
	if err := c.send(randr, rrSetScreenSize, words(c.root, width|height<<16, mm(width), mm(height))); err != nil {
		return err
	}
	return c.configure(randr, res, crtc, mode, []uint32{output})
}

func (c *Conn) screenResources(randr byte) (*resources, error) {
	r, err := c.call(randr, rrGetScreenResources, words(c.root))
	if err != nil {
		return nil, err
	}
	crtcs, outputs, modes := int(order.Uint16(r[16:])), int(order.Uint16(r[18:])), int(order.Uint16(r[20:]))
	const modeSize = 32
	infos := 32 + 4*crtcs + 4*outputs
	names := infos + modeSize*modes
	if crtcs == 0 || outputs == 0 || len(r) < names {
		return nil, errors.New("the screen has no output")
	}
	res := &resources{timestamp: order.Uint32(r[12:]), modes: make(map[string]uint32, modes)}
	for i := range crtcs {
		res.crtcs = append(res.crtcs, order.Uint32(r[32+4*i:]))
	}
	for i := range outputs {
		res.outputs = append(res.outputs, order.Uint32(r[32+4*crtcs+4*i:]))
	}
	for m, name := r[infos:names], r[names:]; len(m) > 0; m = m[modeSize:] {
		n := min(int(order.Uint16(m[26:])), len(name))
		res.modes[string(name[:n])] = order.Uint32(m)
		name = name[n:]
	}
	return res, nil
}

// mode is the output's mode of that size, made when it is new: modes outlive
// the connection that made them, and a name can be given once only.
func (c *Conn) mode(randr byte, res *resources, output, width, height uint32) (uint32, error) {
	name := fmt.Sprintf("cubepod-%dx%d", width, height)
	mode, ok := res.modes[name]
	if !ok {
		// A mode is its size and, for a screen without a cable, nothing else:
		// id, size, dot clock, horizontal sync, total, vertical sync, total
		// with the name's length, flags.
		info := words(0, width|height<<16, 0, 0, width, 0, height|uint32(len(name))<<16, 0)
		r, err := c.call(randr, rrCreateMode, append(append(words(c.root), info...), name...))
		if err != nil {
			return 0, err
		}
		mode = order.Uint32(r[8:])
	}
	return mode, c.send(randr, rrAddOutputMode, words(output, mode))
}

func (c *Conn) configure(randr byte, res *resources, crtc, mode uint32, outputs []uint32) error {
	const rotate0 = 1
	body := words(crtc, 0 /* current time */, res.timestamp, 0 /* x, y */, mode, rotate0)
	r, err := c.call(randr, rrSetCrtcConfig, append(body, words(outputs...)...))
	if err != nil {
		return err
	}
	if status := r[1]; status != 0 {
		return fmt.Errorf("the server refused the mode, status %d", status)
	}
	return nil
}
