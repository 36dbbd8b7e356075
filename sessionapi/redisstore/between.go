package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// replicaWait is how long a write waits for a replica to have it. Where there is
// none that answers there is none to fail over to, and work goes on.
const replicaWait = 200 * time.Millisecond

// listUpdate changes lists through r, which may only queue the commands.
type listUpdate func(ctx context.Context, r redis.Cmdable) error

// between runs a script on one sandbox's keys with list updates before and
// after it; after may be nil. One server gets it all in one round trip and goes
// through it in order. In a cluster the lists are elsewhere, so that the order
// takes a round trip for each.
//
// Where Sentinel may promote a replica, the answer is given when one has it all:
// else a sandbox that somebody was told of would be an orphan after a fail-over,
// and a panel token that was revoked would be good again.
func (s *Store) between(ctx context.Context, before, after listUpdate, script *redis.Script, keys []string, args ...any) (string, error) {
	if after == nil {
		after = func(context.Context, redis.Cmdable) error { return nil }
	}
	if _, ok := s.rdb.(*redis.ClusterClient); ok {
		if err := before(ctx, s.rdb); err != nil {
			return "", err
		}
		got, err := script.Run(ctx, s.rdb, keys, args...).Text()
		if err != nil {
			return "", err
		}
		return got, after(ctx, s.rdb)
	}
	run := func() (string, error) {
		var got *redis.Cmd
		_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			if err := before(ctx, p); err != nil {
				return err
			}
			got = script.EvalSha(ctx, p, keys, args...)
			if err := after(ctx, p); err != nil || !s.replicated {
				return err
			}
			return p.Do(ctx, "WAIT", 1, replicaWait.Milliseconds()).Err()
		})
		if err != nil {
			return "", err
		}
		return got.Text()
	}
	got, err := run()
	if redis.HasErrorPrefix(err, "NOSCRIPT") { // since the server's start
		if err := script.Load(ctx, s.rdb).Err(); err != nil {
			return "", err
		}
		return run()
	}
	return got, err
}
