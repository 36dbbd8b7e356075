package caddymodule

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/session"
)

// hookedRedis answers what a client asks for without a connection: with doc, or
// not at all.
type hookedRedis struct {
	mu   sync.Mutex // guards the fields below
	doc  string
	down bool
	asks int
}

func (h *hookedRedis) DialHook(redis.DialHook) redis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no network here") }
}

func (h *hookedRedis) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *hookedRedis) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.asks++
		if h.down {
			return errors.New("connection refused")
		}
		cmd.(*redis.StringCmd).SetVal(h.doc)
		return nil
	}
}

// TestRecordsWithoutRedis lives through a Redis that is away for long, second by
// second, in no time.
func TestRecordsWithoutRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := &session.Record{ID: session.NewID(), State: session.Running, Gen: 1, Incarnation: 1}
		doc, err := rec.Encode()
		if err != nil {
			t.Fatal(err)
		}
		hook := &hookedRedis{doc: string(doc)}
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // a name would be looked up
		defer rdb.Close()
		rdb.AddHook(hook)
		life, end := context.WithCancel(t.Context())
		var work sync.WaitGroup
		m := newMetrics()
		r := newRecords(life, &work, rdb, newVisits(m, newActivity(rdb, zap.NewNop())), m, zap.NewNop())
		defer work.Wait()
		defer r.stop(end)
		get := func(id session.ID) error {
			_, err := r.get(t.Context(), id)
			return err
		}
		if err := get(rec.ID); err != nil {
			t.Fatal(err)
		}
		hook.mu.Lock()
		hook.down, hook.asks = true, 0
		hook.mu.Unlock()

		start := time.Now()
		for time.Since(start) < recordKept {
			if err := get(rec.ID); err != nil {
				t.Fatalf("known, after %v: %v", time.Since(start), err)
			}
			if time.Since(start) < time.Minute {
				if err := get(session.NewID()); apierror.KindOf(err) != apierror.Unavailable {
					t.Fatalf("unknown, after %v: got %v", time.Since(start), err)
				}
			}
			<-time.After(time.Second)
			r.forgetUnused()
		}
		hook.mu.Lock()
		// While the record is usable, its refresh and the unknown one's look-up may
		// both be under way when the first of them fails.
		if limit := int((recordKept+recordUsable)/downFor) + 2; hook.asks > limit {
			t.Errorf("a Redis that is down was asked %d times, want at most %d", hook.asks, limit)
		}
		hook.mu.Unlock()
		<-time.After(2 * time.Second)
		if err := get(rec.ID); apierror.KindOf(err) != apierror.Unavailable {
			t.Errorf("known, when its time is over: got %v", err)
		}
		hook.mu.Lock()
		hook.down = false
		hook.mu.Unlock()
		<-time.After(2 * downFor)
		if err := get(rec.ID); err != nil {
			t.Errorf("once Redis is back: %v", err)
		}
	})
}
