// Package redisstore keeps sandbox records in Redis. The layout of the keys is
// described in package session; what must happen in one step is a Lua script
// beside this file, and touches the keys of one sandbox only, so that it works
// in a cluster.
package redisstore

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/sessionapi"
)

// opTimeout bounds one call of Redis, its retries included. Whoever waits for
// an answer gets "store_unavailable" in this time.
const opTimeout = 4 * time.Second

const (
	// janitorKey is held by the replica that sweeps.
	janitorKey = "cubepod:janitor"
	// deploymentKey names the store.
	deploymentKey = "cubepod:deployment"
)

var (
	//go:embed create.lua
	createSource string
	//go:embed write.lua
	writeSource string
	//go:embed acquire.lua
	acquireSource string
	//go:embed renew.lua
	renewSource string
	//go:embed release.lua
	releaseSource string
	//go:embed lead.lua
	leadSource string

	createScript  = redis.NewScript(createSource)
	writeScript   = redis.NewScript(writeSource)
	acquireScript = redis.NewScript(acquireSource)
	renewScript   = redis.NewScript(renewSource)
	releaseScript = redis.NewScript(releaseSource)
	leadScript    = redis.NewScript(leadSource)
)

// Store is a sessionapi.Store in Redis.
type Store struct {
	rdb redis.UniversalClient
	// replicated says that a replica may take over at any time.
	replicated bool
}

var _ sessionapi.Store = (*Store)(nil)

// New returns a Store that is not yet connected. It changes opts so that every
// call heeds its context's deadline, and so that a server that is down is
// noticed at once: calls are retried, dialing is not as well.
func New(opts *redis.UniversalOptions) *Store {
	opts.ContextTimeoutEnabled = true
	opts.DialerRetries = 1
	return &Store{rdb: redis.NewUniversalClient(opts), replicated: opts.MasterName != ""}
}

// Close closes the connections.
func (s *Store) Close() error { return s.rdb.Close() }

// Ping reports whether Redis answers.
func (s *Store) Ping(ctx context.Context) error {
	return s.op(ctx, "ping", func(ctx context.Context) error { return s.rdb.Ping(ctx).Err() })
}

// Create implements sessionapi.Store.
func (s *Store) Create(ctx context.Context, rec *session.Record, lookAt time.Time, ttl time.Duration) (sessionapi.Lease, error) {
	doc, err := rec.Encode()
	if err != nil {
		return sessionapi.Lease{}, fmt.Errorf("encode record: %w", err)
	}
	lease := sessionapi.Lease{ID: rec.ID, Holder: rand.Text(), Fence: 1}
	err = s.op(ctx, "create record", func(ctx context.Context) error {
		// The lists come first: a record that is on no list is never found
		// again, an entry without a record is dropped by the janitor.
		got, err := s.between(ctx, func(ctx context.Context, r redis.Cmdable) error {
			place := redis.Z{Score: float64(rec.CreatedAt.UnixMilli()), Member: string(rec.ID)}
			return errors.Join(r.ZAdd(ctx, session.SandboxesKey, place).Err(), hasten(ctx, r, rec.ID, lookAt))
		}, nil, createScript, []string{session.RecordKey(rec.ID), session.LeaseKey(rec.ID)},
			doc, lease.Holder, ttl.Milliseconds(), session.ChangedChannel, string(rec.ID))
		if err == nil && got != "ok" {
			err = fmt.Errorf("sandbox %s exists", rec.ID)
		}
		return err
	})
	return lease, err
}

// Get implements sessionapi.Store.
func (s *Store) Get(ctx context.Context, id session.ID) (sessionapi.Entry, error) {
	var row struct {
		Doc string `redis:"doc"`
		Rev int64  `redis:"rev"`
	}
	err := s.op(ctx, "read record", func(ctx context.Context) error {
		return s.rdb.HMGet(ctx, session.RecordKey(id), session.DocField, "rev").Scan(&row)
	})
	if err != nil {
		return sessionapi.Entry{}, err
	}
	if row.Doc == "" {
		return sessionapi.Entry{}, sessionapi.NotFound(id)
	}
	rec, err := session.Decode([]byte(row.Doc))
	if err != nil {
		return sessionapi.Entry{}, err
	}
	return sessionapi.Entry{Record: rec, Rev: row.Rev}, nil
}

// GetMany implements sessionapi.Store.
func (s *Store) GetMany(ctx context.Context, ids []session.ID) ([]*session.Record, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	cmds := make([]*redis.StringCmd, len(ids))
	err := s.op(ctx, "read records", func(ctx context.Context) error {
		_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, id := range ids {
				cmds[i] = p.HGet(ctx, session.RecordKey(id), session.DocField)
			}
			return nil
		})
		if errors.Is(err, redis.Nil) { // of one of them; each tells below
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	recs := make([]*session.Record, 0, len(ids))
	for _, cmd := range cmds {
		doc, err := cmd.Bytes()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return nil, unavailable("read records", err)
		}
		rec, err := session.Decode(doc)
		if err != nil {
			return nil, err
		}
		recs = append(recs, rec)
	}
	return recs, nil
}

// Write implements sessionapi.Store.
func (s *Store) Write(ctx context.Context, w sessionapi.Write) error {
	doc, err := w.Record.Encode()
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	id := w.Record.ID
	var fence, holder, release any = "", "", 0
	if w.Lease != nil {
		fence, holder = w.Lease.Fence, w.Lease.Holder
		if w.Release {
			release = 1
		}
	}
	var got string
	// Before and after: a janitor that read the old record may have postponed
	// the look between the two, see Postpone.
	look := func(ctx context.Context, r redis.Cmdable) error { return hasten(ctx, r, id, w.LookAt) }
	err = s.op(ctx, "write record", func(ctx context.Context) (err error) {
		got, err = s.between(ctx, look, look, writeScript, []string{session.RecordKey(id), session.LeaseKey(id)},
			w.Rev, doc, fence, holder, release, w.Expire.Milliseconds(), session.ChangedChannel, string(id))
		return err
	})
	switch {
	case err != nil:
		return err
	case got == "missing":
		return sessionapi.NotFound(id)
	case got == "lost":
		return sessionapi.ErrLeaseLost
	case got == "changed":
		return sessionapi.ErrChanged
	}
	return nil
}

// op runs one call with its bound and names its failure.
func (s *Store) op(ctx context.Context, what string, f func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	err := f(bounded)
	if disconnected(err) {
		err = again(bounded, err, f)
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil { // the caller's end, not the store's
		return context.Cause(ctx)
	}
	return unavailable(what, err)
}

func unavailable(what string, err error) error {
	return &apierror.Error{
		Kind: apierror.Unavailable, Code: "store_unavailable", Detail: "the store does not answer",
		RetryAfter: time.Second, Err: fmt.Errorf("%s: %w", what, err),
	}
}
