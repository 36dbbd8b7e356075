package sessionapi

import (
	"context"
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/session"
)

// Filter says which sandboxes a list has.
type Filter struct {
	// States the sandbox is in one of; default running and paused, which is
	// all that E2B's clients know.
	States []session.State
	// Metadata are sets of pairs; the sandbox has all of one of them. None means
	// that any will do.
	Metadata []map[string]string
	// Template is the sandbox's, unless empty.
	Template string
	// StartedAfter is no later than the sandbox's start.
	StartedAfter time.Time
}

func (f *Filter) passes(rec *session.Record) bool {
	if !slices.Contains(f.States, rec.State) || f.Template != "" && f.Template != rec.Template || rec.StartedAt.Before(f.StartedAfter) {
		return false
	}
	return len(f.Metadata) == 0 || slices.ContainsFunc(f.Metadata, func(pairs map[string]string) bool {
		for k, v := range pairs {
			if got, ok := rec.Metadata[k]; !ok || got != v {
				return false
			}
		}
		return true
	})
}

// listBatch is how many records are read at once.
const listBatch = 200

// List gives at most limit of the caller's sandboxes that pass f, the youngest
// first, after the page that ended with token. The next page's token is empty
// when there is none.
func (s *Service) List(ctx context.Context, caller Caller, f Filter, token string, limit int) ([]*session.Record, string, error) {
	if f.States == nil {
		f.States = []session.State{session.Running, session.Paused}
	}
	at, err := parsePageToken(token)
	if err != nil {
		return nil, "", err
	}
	out := []*session.Record{}
	for {
		places, err := s.store.List(ctx, at, listBatch)
		if err != nil {
			return nil, "", err
		}
		ids := make([]session.ID, len(places))
		place := map[session.ID]Position{}
		for i, p := range places {
			ids[i], place[p.ID] = p.ID, p
		}
		recs, err := s.store.GetMany(ctx, ids)
		if err != nil {
			return nil, "", err
		}
		for _, rec := range recs {
			if !caller.mayUse(rec) || !f.passes(rec) {
				continue
			}
			if len(out) == limit { // there is one more, so there is a next page
				last := out[limit-1].ID
				return out, pageToken(Position{ID: last, Created: out[limit-1].CreatedAt}), nil
			}
			out = append(out, rec)
		}
		if len(places) < listBatch {
			return out, "", nil
		}
		at = places[len(places)-1]
	}
}

func pageToken(p Position) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(p.Created.UnixMilli(), 10) + "." + string(p.ID)))
}

func parsePageToken(token string) (Position, error) {
	if token == "" {
		return Position{}, nil
	}
	raw, _ := base64.RawURLEncoding.DecodeString(token)
	ms, name, _ := strings.Cut(string(raw), ".")
	created, err := strconv.ParseInt(ms, 10, 64)
	id, ok := session.ParseID(name)
	if err != nil || !ok {
		return Position{}, apierror.New(apierror.Invalid, "invalid_token", "nextToken is not one that this API gave")
	}
	return Position{ID: id, Created: time.UnixMilli(created)}, nil
}

// PauseAll pauses every running sandbox of this Service's runtime, all at once.
// It is for a server that nobody can take over from.
func (s *Service) PauseAll(ctx context.Context) error {
	var mu sync.Mutex
	var first error
	var workers sync.WaitGroup
	var at Position
	for {
		places, err := s.store.List(ctx, at, listBatch)
		if err != nil {
			workers.Wait()
			return err
		}
		for _, p := range places {
			workers.Go(func() {
				if err := s.pauseRunning(ctx, p.ID); err != nil {
					mu.Lock()
					defer mu.Unlock()
					if first == nil {
						first = err
					}
				}
			})
		}
		if len(places) < listBatch {
			workers.Wait()
			return first
		}
		at = places[len(places)-1]
	}
}

func (s *Service) pauseRunning(ctx context.Context, id session.ID) error {
	e, err := s.store.Get(ctx, id)
	if apierror.KindOf(err) == apierror.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case s.ours(e.Record) != nil:
		return nil
	case e.Record.State == session.Running, e.Record.State.Transient():
		_, err := s.pauseIf(ctx, id, nil)
		if k := apierror.KindOf(err); k == apierror.NotFound || k == apierror.Conflict {
			return nil // it went another way meanwhile
		}
		return err
	}
	return nil
}

func sortedPorts(rec *session.Record) []int { return slices.Sorted(maps.Keys(rec.Ports)) }
