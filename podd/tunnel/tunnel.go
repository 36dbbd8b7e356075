// Package tunnel carries the bytes of a guest's loopback port to a caller of
// podd and back.
package tunnel

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
)

// dialTimeout bounds a dial on loopback, which answers at once unless the
// listener's queue is full.
const dialTimeout = 5 * time.Second

// Registry holds the open tunnels.
type Registry struct {
	serving sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	open   map[net.Conn]struct{}
	closed bool
	opened int64
}

// NewRegistry returns a Registry without tunnels.
func NewRegistry() *Registry { return &Registry{open: map[net.Conn]struct{}{}} }

// Serve turns the request into a tunnel to port and returns when the tunnel
// has ended. An error means that nothing was answered yet.
func (g *Registry) Serve(w http.ResponseWriter, r *http.Request, port int) error {
	guest, err := dial(r.Context(), port)
	if err != nil {
		return err
	}
	if !g.add(guest) {
		guest.Close()
		return apierror.New(apierror.Unavailable, "stopping", "podd is ending")
	}
	defer g.remove(guest)
	caller, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	defer caller.Close()
	if _, err := io.WriteString(caller, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"); err != nil {
		return nil
	}
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	if _, err := guest.Write(early); err != nil {
		return nil
	}
	splice(caller, guest)
	return nil
}

func dial(ctx context.Context, port int) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var d net.Dialer
	p := strconv.Itoa(port)
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", p))
	if err != nil {
		conn, err = d.DialContext(ctx, "tcp", net.JoinHostPort("::1", p))
	}
	if err != nil {
		return nil, apierror.Wrap(err, apierror.BadGateway, "port_closed", "nobody listens on port %d", port)
	}
	return conn, nil
}

// splice copies both ways until both sides have ended their stream, or one of
// them has failed.
func splice(a, b net.Conn) {
	var copiers sync.WaitGroup
	one := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		if err == nil {
			err = closeWrite(to)
		}
		if err != nil { // the other direction has nobody left to talk to
			a.Close()
			b.Close()
		}
	}
	copiers.Go(func() { one(a, b) })
	one(b, a)
	copiers.Wait()
}

func closeWrite(c net.Conn) error {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return c.Close()
}

func (g *Registry) add(c net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.serving.Add(1)
	g.open[c] = struct{}{}
	g.opened++
	return true
}

func (g *Registry) remove(c net.Conn) {
	c.Close()
	g.mu.Lock()
	delete(g.open, c)
	g.mu.Unlock()
	g.serving.Done()
}

// Count gives the tunnels that are open and how many there ever were.
func (g *Registry) Count() (open int, ever int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.open), g.opened
}

// Close ends every tunnel, lets none be opened any more, and waits.
func (g *Registry) Close() {
	g.mu.Lock()
	g.closed = true
	for c := range g.open {
		c.Close()
	}
	g.mu.Unlock()
	g.serving.Wait()
}
