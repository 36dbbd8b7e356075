package viewer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"

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
		return &greeted{Conn: conn, said: []byte(version)}, nil
	}
}

// greeted is a connection on which the viewer's first words were said already.
type greeted struct {
	net.Conn
	said []byte // what the viewer has yet to say itself
}

// Write leaves out what was said.
func (g *greeted) Write(p []byte) (int, error) {
	again := min(len(p), len(g.said))
	if !bytes.Equal(p[:again], g.said[:again]) {
		return 0, errVersion
	}
	g.said = g.said[again:]
	if again == len(p) {
		return again, nil
	}
	n, err := g.Conn.Write(p[again:])
	return again + n, err
}
