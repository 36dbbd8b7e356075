package x11

import (
	"fmt"
	"image"
)

// Image is what the screen shows now.
func (c *Conn) Image() (*image.NRGBA, error) {
	if c.bitsPerPixel != 32 || c.rootDepth != 24 {
		return nil, fmt.Errorf("screen has depth %d with %d bits per pixel, want 24 with 32", c.rootDepth, c.bitsPerPixel)
	}
	const zPixmap = 2
	body := words(c.root, 0 /* x, y */)
	body = order.AppendUint16(body, uint16(c.width))
	body = order.AppendUint16(body, uint16(c.height))
	r, err := c.call(opGetImage, zPixmap, append(body, words(0xffffffff)...))
	if err != nil {
		return nil, err
	}
	pix := r[32:]
	if len(pix) < 4*c.width*c.height {
		return nil, fmt.Errorf("image has %d bytes, want %d", len(pix), 4*c.width*c.height)
	}
	img := image.NewNRGBA(image.Rect(0, 0, c.width, c.height))
	for i := range c.width * c.height {
		p, q := pix[4*i:4*i+4], img.Pix[4*i:4*i+4]
		q[0], q[1], q[2], q[3] = p[2], p[1], p[0], 0xff
	}
	return img, nil
}
