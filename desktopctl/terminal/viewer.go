package terminal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/creack/pty"

	"github.com/cubeplexai/cubepod/desktopctl/web"
	"github.com/cubeplexai/cubepod/internal/apierror"
)

const (
	// maxMessage bounds one message of a viewer. The page cuts a paste into
	// far smaller ones.
	maxMessage = 1 << 20
	// maxPause is how long a viewer may hold up its output.
	maxPause = 30 * time.Second
)

// viewer is one page that shows the terminal.
type viewer struct {
	socket *web.Socket
	joined chan struct{} // closed when the first message was read
	giveUp context.CancelCauseFunc

	// The fields below are guarded by Terminal.mu.
	size   pty.Winsize
	replay []byte // what to show first
	offset int64  // how far the output was sent
	paused bool
}

// goodbye is an error that ends a viewer and becomes its close frame.
type goodbye struct {
	code   websocket.StatusCode
	reason string
}

func (g goodbye) Error() string { return g.reason }

var (
	errStopping = goodbye{websocket.StatusGoingAway, "the terminal is being stopped"}
	errTooSlow  = goodbye{websocket.StatusTryAgainLater, "too slow for the output; connect again"}
	errPageGone = goodbye{websocket.StatusNormalClosure, ""}
	errSilent   = goodbye{websocket.StatusPolicyViolation, "no answer to a ping"}
	errProtocol = goodbye{websocket.StatusProtocolError, "no message of ttyd's"}
	errTooBig   = goodbye{websocket.StatusMessageTooBig, "the message is too big"}
	errNoShell  = goodbye{websocket.StatusInternalError, "the shell does not start"}
)

func (t *Terminal) serveSocket(w http.ResponseWriter, r *http.Request) {
	if !t.begin() {
		apierror.Write(w, apierror.New(apierror.Unavailable, "stopping", "the terminal is being stopped"))
		return
	}
	defer t.work.Done()
	socket, err := web.Accept(w, r, Subprotocol)
	if err != nil {
		return // Accept has answered
	}
	// The context ends our own waits. The socket's calls do not get it: to
	// cancel one would break the connection before the goodbye.
	ctx, cancel := context.WithCancelCause(t.life)
	defer context.AfterFunc(ctx, t.wakeAll)()
	v := &viewer{socket: socket, joined: make(chan struct{}), giveUp: cancel, size: defaultSize}
	var own sync.WaitGroup
	own.Go(func() { cancel(t.receive(ctx, v)) })
	own.Go(func() { cancel(t.send(ctx, v)) })
	own.Go(func() {
		if v.socket.Beat(ctx, t.opts.Heartbeat) != nil {
			cancel(errSilent)
		}
	})
	<-ctx.Done()
	bye, ok := errors.AsType[goodbye](context.Cause(ctx))
	if !ok {
		bye = errStopping
	}
	t.leave(v)
	socket.Close(bye.code, bye.reason)
	own.Wait()
}

// pause stops v's output, or lets it go on.
func (t *Terminal) pause(v *viewer, paused bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v.paused = paused
	t.changed.Broadcast()
}

// wakeAll lets every waiting goroutine look at its context again.
func (t *Terminal) wakeAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changed.Broadcast()
}

// receive takes what the page sends until there is a reason to end.
func (t *Terminal) receive(ctx context.Context, v *viewer) error {
	stalled := time.AfterFunc(maxPause, func() { v.giveUp(errTooSlow) })
	defer stalled.Stop()
	stalled.Stop()
	for {
		msg, err := readMessage(v.socket)
		if err != nil {
			return err
		}
		if len(msg) == 0 {
			continue
		}
		kind, data := msg[0], msg[1:]
		if !isClosed(v.joined) {
			// ttyd's page says its size first; a plainer client may begin by
			// typing.
			if kind == '{' {
				if v.size, err = parseSize(msg); err != nil {
					return err
				}
			}
			if t.join(v) != nil {
				return errNoShell
			}
			close(v.joined)
		}
		switch kind {
		case '{':
		case '0':
			if err := t.typed(ctx, v, data); err != nil {
				return errNoShell
			}
		case '1':
			size, err := parseSize(data)
			if err != nil {
				return err
			}
			t.resize(v, size)
		case '2':
			stalled.Reset(maxPause)
			t.pause(v, true)
		case '3':
			stalled.Stop()
			t.pause(v, false)
		default:
			return errProtocol
		}
	}
}

func readMessage(s *web.Socket) ([]byte, error) {
	r, err := s.NextReader(context.Background())
	if err != nil {
		return nil, errPageGone
	}
	msg, err := io.ReadAll(io.LimitReader(r, maxMessage+1))
	switch {
	case err != nil:
		return nil, errPageGone
	case len(msg) > maxMessage:
		return nil, errTooBig
	}
	return msg, nil
}

// parseSize reads {"columns":80,"rows":24}. What is absent or out of all
// bounds is as in a terminal nobody sees.
func parseSize(data []byte) (pty.Winsize, error) {
	var s struct{ Columns, Rows uint16 }
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&s); err != nil {
		return pty.Winsize{}, errProtocol
	}
	size := defaultSize
	if s.Columns > 0 && s.Columns <= 4096 {
		size.Cols = s.Columns
	}
	if s.Rows > 0 && s.Rows <= 4096 {
		size.Rows = s.Rows
	}
	return size, nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// send shows the page the terminal until there is a reason to end.
func (t *Terminal) send(ctx context.Context, v *viewer) error {
	select {
	case <-v.joined:
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, msg := range [][]byte{[]byte("1" + t.title()), []byte("2{}"), append([]byte("0"), v.replay...)} {
		if err := v.socket.Write(context.Background(), msg); err != nil {
			return errPageGone
		}
	}
	v.replay = nil
	msg := make([]byte, 1+readSize)
	msg[0] = '0'
	for {
		n, err := t.next(ctx, v, msg[1:])
		if err != nil {
			return err
		}
		if err := v.socket.Write(context.Background(), msg[:1+n]); err != nil {
			return errPageGone
		}
	}
}

// next waits for output that v has not been sent and copies it to p.
func (t *Terminal) next(ctx context.Context, v *viewer, p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for v.paused || v.offset == t.output.end {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		t.changed.Wait()
	}
	if v.offset < t.output.start() {
		return 0, errTooSlow
	}
	n := t.output.read(p, v.offset)
	v.offset += int64(n)
	t.changed.Broadcast() // the shell may wait for room
	return n, nil
}
