package web

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/cubeplexai/cubepod/internal/apierror"
)

// Heartbeat is how often a page is pinged. Proxies on the way commonly cut
// what was silent for 30 or 60 seconds.
const Heartbeat = 20 * time.Second

// WriteTimeout is how long a page may take to accept one message.
const WriteTimeout = 30 * time.Second

// Socket is the WebSocket of one page. Reading is for one goroutine, all else
// for any.
type Socket struct {
	conn *websocket.Conn
	// moved counts messages and pieces of messages, both ways, as signs of
	// life for the heartbeat.
	moved atomic.Int64
}

// Handshake reports a request that does not ask for a WebSocket.
func Handshake(r *http.Request) error {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return apierror.New(apierror.Invalid, "websocket_required", "this address is for WebSockets")
	}
	return nil
}

// Accept answers a WebSocket handshake, and its error if there is one.
// Clients may come without Origin and without subprotocol; subprotocol is
// echoed to those that offer it, since a browser breaks off otherwise.
func Accept(w http.ResponseWriter, r *http.Request, subprotocol string) (*Socket, error) {
	if err := Handshake(r); err != nil {
		apierror.Write(w, err)
		return nil, err
	}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols: []string{subprotocol},
		// The guard has compared Origin with the port's own address; the
		// library would compare it with Host, which the edge sets as well.
		InsecureSkipVerify: true,
	})
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(-1) // messages are read as streams
	return &Socket{conn: conn}, nil
}

// NextReader waits for the next message.
func (s *Socket) NextReader(ctx context.Context) (io.Reader, error) {
	_, r, err := s.conn.Reader(ctx)
	if err != nil {
		return nil, err
	}
	s.moved.Add(1)
	return countingReader{r, &s.moved}, nil
}

type countingReader struct {
	r io.Reader
	n *atomic.Int64
}

func (c countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(1)
	return n, err
}

// Write sends p as one binary message. A page that does not take it within
// [WriteTimeout] is given up.
func (s *Socket) Write(ctx context.Context, p []byte) error {
	ctx, cancel := context.WithTimeout(ctx, WriteTimeout)
	defer cancel()
	err := s.conn.Write(ctx, websocket.MessageBinary, p)
	if err == nil {
		s.moved.Add(1)
	}
	return err
}

// errSilent is why a page that answers no ping is given up.
var errSilent = errors.New("no answer to a ping, and nothing else")

// Beat pings every interval until ctx ends or the page is silent for as long
// again. Traffic is as good an answer as a pong: a page on a slow line may
// have a pong to send behind a screen that it is still receiving.
func (s *Socket) Beat(ctx context.Context, interval time.Duration) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		before := s.moved.Load()
		pong, cancel := context.WithTimeout(ctx, interval)
		err := s.conn.Ping(pong)
		cancel()
		if err != nil && s.moved.Load() == before {
			return errors.Join(errSilent, err)
		}
	}
}

// Close says goodbye with a close frame and waits a moment for the page's own.
func (s *Socket) Close(code websocket.StatusCode, reason string) {
	_ = s.conn.Close(code, reason) // nobody is left to tell
}
