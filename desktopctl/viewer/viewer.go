// Package viewer is the guest's port 8080: the page that shows the desktop and
// the relay from the page's WebSocket to the VNC server's RFB.
//
// The relay moves bytes and reads none of them. Clipboard text is RFB's: with
// a VNC server that knows the extended clipboard it is any text, else Latin-1,
// and the page replaces other characters. The page asks which, at
// /settings.json, since a server's own word is not to be trusted: libvncserver
// agrees to the extended clipboard, and x11vnc then ignores what comes by it.
package viewer

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/cubeplexai/cubepod/desktopctl/web"
	"github.com/cubeplexai/cubepod/internal/apierror"
)

// Subprotocol is echoed to clients that offer it; older noVNC does.
const Subprotocol = "binary"

const (
	// dialTimeout bounds Options.RFB.
	dialTimeout = 10 * time.Second
	// bufferSize is about one screen update of a page at rest.
	bufferSize = 32 << 10
)

// Options are what a Viewer needs.
type Options struct {
	// WebDir holds the built page: index.html, viewer.js, viewer.css.
	WebDir string
	// RFB connects to the VNC server, once for each viewer; see [Dial].
	RFB func(context.Context) (net.Conn, error)
	// Unicode says that the VNC server takes clipboard text beyond Latin-1.
	Unicode bool
	// Keys sees to it that characters have keys, given by their keysyms, before
	// the VNC server is to press them. With nil there is no such help.
	Keys func(context.Context, []uint32) error
	// Heartbeat is how often a viewer is pinged; zero means [web.Heartbeat].
	Heartbeat time.Duration
}

// Viewer is the handler of port 8080. It guards nothing by itself: wrap it in
// loopback.Guard.
type Viewer struct {
	opts Options
	mux  *http.ServeMux

	life context.Context // ends with Close
	end  context.CancelFunc

	mu     sync.Mutex // guards the fields below
	closed bool
	relays sync.WaitGroup
}

// New returns a Viewer. Close ends it.
func New(opts Options) *Viewer {
	if opts.Heartbeat == 0 {
		opts.Heartbeat = web.Heartbeat
	}
	v := &Viewer{opts: opts, mux: http.NewServeMux()}
	v.life, v.end = context.WithCancel(context.Background())
	v.mux.HandleFunc("GET /websockify", v.websockify)
	v.mux.HandleFunc("GET /settings.json", v.settings)
	if opts.Keys != nil {
		v.mux.HandleFunc("POST /keys", v.keys)
	}
	v.mux.Handle("/", web.Pages(opts.WebDir, "/{$}", "/vnc.html", "/vnc_lite.html"))
	return v
}

// ServeHTTP answers one request; for a viewer's WebSocket it returns when that
// ends.
func (v *Viewer) ServeHTTP(w http.ResponseWriter, r *http.Request) { v.mux.ServeHTTP(w, r) }

// Close says goodbye to every viewer and waits until the last relay has ended.
func (v *Viewer) Close() error {
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	v.end()
	v.relays.Wait()
	return nil
}

// begin counts a relay that Close has to wait for, unless Close was called.
func (v *Viewer) begin() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return false
	}
	v.relays.Add(1)
	return true
}

// settings tells the page what it cannot find out.
func (v *Viewer) settings(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	_ = json.NewEncoder(w).Encode(map[string]bool{"unicodeClipboard": v.opts.Unicode})
}

func (v *Viewer) websockify(w http.ResponseWriter, r *http.Request) {
	if err := web.Handshake(r); err != nil { // before the VNC server is bothered
		apierror.Write(w, err)
		return
	}
	if !v.begin() {
		apierror.Write(w, apierror.New(apierror.Unavailable, "stopping", "the viewer is being stopped"))
		return
	}
	defer v.relays.Done()
	// The server first, so that a client learns by the status that there is
	// none, rather than by a socket that opens and closes.
	dial, cancel := context.WithTimeout(v.life, dialTimeout)
	rfb, err := v.opts.RFB(dial)
	cancel()
	if err != nil {
		apierror.Write(w, apierror.Wrap(err, apierror.BadGateway, "port_closed", "the VNC server does not answer"))
		return
	}
	defer rfb.Close()
	page, err := web.Accept(w, r, Subprotocol)
	if err != nil {
		return // Accept has answered
	}
	v.relay(page, rfb)
}

// goodbye is the close frame that ends a relay.
type goodbye struct {
	code   websocket.StatusCode
	reason string
}

var (
	stopping   = goodbye{websocket.StatusGoingAway, "the viewer is being stopped"}
	serverGone = goodbye{websocket.StatusBadGateway, "the VNC server closed the connection"}
	pageGone   = goodbye{websocket.StatusNormalClosure, ""}
	pageSilent = goodbye{websocket.StatusPolicyViolation, "no answer to a ping"}
)

// relay moves bytes both ways until either side ends or Close is called. It
// holds one buffer for each way: a side that does not read stops the other
// from being read, so a slow viewer costs the VNC server updates and no memory.
func (v *Viewer) relay(page *web.Socket, rfb net.Conn) {
	// The page's calls get no context that is cancelled here: cancelling one
	// breaks the connection before the goodbye. Closing both sides ends them.
	ctx := context.Background()
	beat, endBeat := context.WithCancel(ctx)
	ended := make(chan goodbye, 3) // room for all, so that none waits
	var pumps sync.WaitGroup
	pumps.Go(func() { ended <- toPage(ctx, page, rfb) })
	pumps.Go(func() { ended <- toServer(ctx, page, rfb) })
	pumps.Go(func() {
		if page.Beat(beat, v.opts.Heartbeat) != nil {
			ended <- pageSilent
		}
	})
	var bye goodbye
	select {
	case bye = <-ended:
	case <-v.life.Done():
		bye = stopping
	}
	endBeat()
	rfb.Close()
	page.Close(bye.code, bye.reason)
	pumps.Wait()
}

func toPage(ctx context.Context, page *web.Socket, rfb net.Conn) goodbye {
	buf := make([]byte, bufferSize)
	for {
		n, err := rfb.Read(buf)
		if n > 0 && page.Write(ctx, buf[:n]) != nil {
			return pageGone
		}
		if err != nil {
			return serverGone
		}
	}
}

func toServer(ctx context.Context, page *web.Socket, rfb net.Conn) goodbye {
	buf := make([]byte, bufferSize)
	for {
		msg, err := page.NextReader(ctx)
		if err != nil {
			return pageGone
		}
		for {
			n, err := msg.Read(buf)
			if n > 0 {
				if _, err := rfb.Write(buf[:n]); err != nil {
					return serverGone
				}
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				return pageGone
			}
		}
	}
}
