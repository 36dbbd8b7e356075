package sessionapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/cubeplexai/cubepod/internal/session"
)

// heartbeat keeps proxies from taking a quiet stream for a dead one.
const heartbeat = 15 * time.Second

// feed collects the ids of all sandboxes that change, each once until they are
// taken.
type feed struct {
	c    chan struct{} // holds one
	from *changes

	mu  sync.Mutex // guards the field below
	ids map[session.ID]struct{}
}

func (c *changes) follow() *feed {
	f := &feed{c: make(chan struct{}, 1), from: c, ids: map[session.ID]struct{}{}}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.feeds[f] = struct{}{}
	return f
}

func (f *feed) stop() {
	f.from.mu.Lock()
	defer f.from.mu.Unlock()
	delete(f.from.feeds, f)
}

func (f *feed) add(id session.ID) {
	f.mu.Lock()
	f.ids[id] = struct{}{}
	f.mu.Unlock()
	select {
	case f.c <- struct{}{}:
	default: // what is there is taken with it
	}
}

func (f *feed) take() []session.ID {
	f.mu.Lock()
	defer f.mu.Unlock()
	ids := slices.Collect(maps.Keys(f.ids))
	clear(f.ids)
	return ids
}

// events streams what becomes of the caller's sandboxes as server-sent events:
// "ready" at first, "sandbox" with a sandbox that changed, "gone" with the id of
// one that was deleted. A change can be missed while the store is away, so that
// who follows lists now and then, too.
func (a *api) events(w http.ResponseWriter, r *http.Request, caller Caller) error {
	f := a.changes.follow()
	defer f.stop()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no")
	send := func(event string, data any) error {
		line, err := json.Marshal(data)
		if err == nil {
			_, err = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, line)
		}
		return err
	}
	flush := http.NewResponseController(w).Flush
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	err := send("ready", struct{}{})
	for err == nil {
		if err = flush(); err != nil {
			break
		}
		select {
		case <-f.c:
			err = a.tell(r, caller, f.take(), send)
		case <-beat.C:
			_, err = fmt.Fprint(w, ":\n\n")
		case <-r.Context().Done():
			return nil
		case <-a.streams.Done():
			return nil
		}
	}
	return nil // the client left, or will come again: there is no answer left to give
}

func (a *api) tell(r *http.Request, caller Caller, ids []session.ID, send func(string, any) error) error {
	recs, err := a.store.GetMany(r.Context(), ids)
	if err != nil {
		return err // ends the stream: who follows comes again, and lists
	}
	for _, rec := range recs {
		switch {
		case !caller.mayUse(rec):
		case rec.State == session.Deleted:
			err = send("gone", map[string]session.ID{"sandboxID": rec.ID})
		default:
			err = send("sandbox", a.view(rec))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
