package viewer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/cubeplexai/cubepod/desktopctl/daemon"
)

// version is what the client of an RFB connection says first, and the only
// version that our VNC servers and noVNC speak with each other.
const version = "RFB 003.008\n"

var errVersion = errors.New("the viewer speaks another version of RFB than 3.8")

// Dial returns an [Options.RFB] that connects to the VNC server at a Unix
// socket. It waits, as long as its context lasts, for a server that is not up
// yet, or that has as many viewers waiting as it can take: at a Unix socket
// those beyond are refused rather than queued.
func Dial(socket string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		var conn net.Conn
		err := daemon.Poll(ctx, func(ctx context.Context) (err error) {
			conn, err = d.DialContext(ctx, "unix", socket)
			return err
		})
		if err != nil {
			return nil, err
		}
		// A server built on libvncserver gives each client 100 ms to begin a
		// WebSocket handshake and does nothing else meanwhile. What the viewer
		// is going to say anyway, said at once, spares everybody that.
		if _, err := io.WriteString(conn, version); err != nil {
			conn.Close()
			return nil, err
		}
		return greet(conn), nil
	}
}

// greeted is an RFB connection whose server has been told the version already.
//
// To the viewer it must look like any other, where the server waits for the
// viewer's version before it goes on: noVNC 1.3 takes one step for each message
// it gets, and with two in one it waits for ever.
type greeted struct {
	net.Conn
	said   []byte        // what the viewer has yet to say itself
	banner int           // how much of the server's own version is yet to be read
	agreed chan struct{} // closed when the viewer has said all of it
	closed chan struct{} // closed by Close
	once   sync.Once
}

func greet(conn net.Conn) *greeted {
	return &greeted{
		Conn: conn, said: []byte(version), banner: len(version),
		agreed: make(chan struct{}), closed: make(chan struct{}),
	}
}

// Read gives the server's version, and nothing beyond it until the viewer has
// answered. It is for one goroutine.
func (g *greeted) Read(p []byte) (int, error) {
	if g.banner > 0 {
		n, err := g.Conn.Read(p[:min(len(p), g.banner)])
		g.banner -= n
		return n, err
	}
	select {
	case <-g.agreed:
		return g.Conn.Read(p)
	case <-g.closed:
		return 0, net.ErrClosed
	}
}

// Write sends what the viewer says, without what the server has heard. It is
// for one goroutine.
func (g *greeted) Write(p []byte) (int, error) {
	if len(g.said) == 0 {
		return g.Conn.Write(p)
	}
	again := min(len(p), len(g.said))
	if !bytes.Equal(p[:again], g.said[:again]) {
		return 0, errVersion
	}
	if g.said = g.said[again:]; len(g.said) == 0 {
		close(g.agreed)
	}
	if again == len(p) {
		return again, nil
	}
	n, err := g.Conn.Write(p[again:])
	return again + n, err
}

// Close ends the connection, a Read that waits for the viewer included.
func (g *greeted) Close() error {
	g.once.Do(func() { close(g.closed) })
	return g.Conn.Close()
}
