package redisstore

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Trips counts round trips to Redis.
type Trips struct{ n atomic.Int64 }

var _ redis.Hook = (*Trips)(nil)

// Count counts the Store's round trips from now on. It is for tests and
// benchmarks.
func (s *Store) Count(t *Trips) { s.rdb.AddHook(t) }

// Load gives the number of round trips so far.
func (t *Trips) Load() int64 { return t.n.Load() }

// DialHook implements redis.Hook.
func (t *Trips) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (t *Trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		t.n.Add(1)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (t *Trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		t.n.Add(1)
		return next(ctx, cmds)
	}
}
