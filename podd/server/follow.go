package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/cubeplexai/cubepod/podd/command"
)

const (
	// followBeat is how often a silent stream shows that it lives.
	followBeat = 15 * time.Second
	// followStall is how long a reader may leave a write waiting.
	followStall = 30 * time.Second
)

// output is the data of an "output" event.
type output struct {
	Content    string `json:"content"`
	ContentB64 string `json:"content_b64,omitempty"`
	Cursor     int64  `json:"cursor"`
	Truncated  bool   `json:"truncated,omitempty"`
}

// follow sends output as server-sent events as it comes, and at last the
// status. A reader that stalls is cut off; the command never notices.
func (s *Server) follow(w http.ResponseWriter, r *http.Request, c *command.Command, cursor int64) error {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	rc := http.NewResponseController(w)
	send := func(p []byte) error {
		if err := rc.SetWriteDeadline(time.Now().Add(followStall)); err != nil {
			return err
		}
		if _, err := w.Write(p); err != nil {
			return err
		}
		return rc.Flush()
	}
	// A stream that broke has no way left to say so but its end.
	for err := send(nil); err == nil; {
		ctx, cancel := context.WithTimeout(r.Context(), followBeat)
		p, readErr := excerptOf(ctx, c, cursor, false)
		cancel()
		switch {
		case readErr != nil || r.Context().Err() != nil:
			return nil
		case len(p.bytes) > 0:
			cursor = p.status.Cursor
			o := output{Cursor: cursor, Truncated: p.status.Truncated}
			o.Content, o.ContentB64 = p.text()
			err = send(event("output", o))
		case !p.status.Running:
			send(event("end", p.status))
			return nil
		default:
			err = send([]byte(": still running\n\n"))
		}
	}
	return nil
}

// event is one server-sent event. JSON has no line break in it.
func event(name string, data any) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "event: %s\ndata: ", name)
	json.NewEncoder(&b).Encode(data) // strings and numbers cannot fail
	b.WriteByte('\n')
	return b.Bytes()
}
