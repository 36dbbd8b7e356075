package redisstore

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/sessionapi"
)

// List implements sessionapi.Store.
func (s *Store) List(ctx context.Context, after sessionapi.Position, n int) ([]sessionapi.Position, error) {
	first := redis.ZRangeArgs{Key: session.SandboxesKey, Start: "+inf", Stop: "-inf", ByScore: true, Rev: true, Count: int64(n)}
	if after.ID != "" {
		first.Start = strconv.FormatInt(after.Created.UnixMilli(), 10)
	}
	var out []sessionapi.Position
	err := s.op(ctx, "list sandboxes", func(ctx context.Context) error {
		query := first
		out = nil
		for {
			page, err := s.rdb.ZRangeArgsWithScores(ctx, query).Result()
			if err != nil {
				return err
			}
			for _, z := range page {
				p := sessionapi.Position{ID: session.ID(z.Member.(string)), Created: time.UnixMilli(int64(z.Score))}
				// Those of the same millisecond come in falling order of id.
				if after.ID != "" && !p.Created.Before(after.Created) && p.ID >= after.ID {
					continue
				}
				if out = append(out, p); len(out) == n {
					return nil
				}
			}
			if len(page) < n {
				return nil
			}
			query.Offset += int64(len(page))
		}
	})
	return out, err
}

// Due implements sessionapi.Store.
func (s *Store) Due(ctx context.Context, now time.Time, n int) ([]session.ID, error) {
	var ids []session.ID
	err := s.op(ctx, "list due sandboxes", func(ctx context.Context) error {
		names, err := s.rdb.ZRangeArgs(ctx, redis.ZRangeArgs{
			Key: session.EndsKey, Start: "-inf", Stop: now.UnixMilli(), ByScore: true, Count: int64(n),
		}).Result()
		ids = nil
		for _, name := range names {
			ids = append(ids, session.ID(name))
		}
		return err
	})
	return ids, err
}

// Postpone implements sessionapi.Store. A writer that brings the end forward
// lowers the hint before and after its write; a janitor raises it and then
// reads the record again. Whoever comes last sees the other, so a hint is
// never left later than the record says.
func (s *Store) Postpone(ctx context.Context, id session.ID, lookAt time.Time) error {
	return s.op(ctx, "postpone look", func(ctx context.Context) error {
		if lookAt.IsZero() {
			return s.rdb.ZRem(ctx, session.EndsKey, string(id)).Err()
		}
		return s.rdb.ZAdd(ctx, session.EndsKey, redis.Z{Score: float64(lookAt.UnixMilli()), Member: string(id)}).Err()
	})
}

// Hasten implements sessionapi.Store.
func (s *Store) Hasten(ctx context.Context, id session.ID, lookAt time.Time) error {
	return s.op(ctx, "hasten look", func(ctx context.Context) error { return hasten(ctx, s.rdb, id, lookAt) })
}

func hasten(ctx context.Context, r redis.Cmdable, id session.ID, lookAt time.Time) error {
	if lookAt.IsZero() {
		return nil
	}
	return r.ZAddLT(ctx, session.EndsKey, redis.Z{Score: float64(lookAt.UnixMilli()), Member: string(id)}).Err()
}

// Forget implements sessionapi.Store.
func (s *Store) Forget(ctx context.Context, id session.ID) error {
	return s.op(ctx, "forget sandbox", func(ctx context.Context) error {
		return errors.Join(
			s.rdb.ZRem(ctx, session.EndsKey, string(id)).Err(),
			s.rdb.ZRem(ctx, session.SandboxesKey, string(id)).Err())
	})
}

// Touch implements sessionapi.Store.
func (s *Store) Touch(ctx context.Context, id session.ID, t time.Time, ttl time.Duration) error {
	return s.op(ctx, "note activity", func(ctx context.Context) error {
		return s.rdb.Set(ctx, session.ActivityKey(id), t.Unix(), ttl).Err()
	})
}

// Touched implements sessionapi.Store.
func (s *Store) Touched(ctx context.Context, id session.ID) (time.Time, error) {
	var t time.Time
	err := s.op(ctx, "read activity", func(ctx context.Context) error {
		secs, err := s.rdb.Get(ctx, session.ActivityKey(id)).Int64()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		t = time.Unix(secs, 0)
		return err
	})
	return t, err
}

// Watch implements sessionapi.Store.
func (s *Store) Watch(ctx context.Context, changed func(session.ID)) {
	sub := s.rdb.Subscribe(ctx, session.ChangedChannel)
	defer sub.Close() // ends the goroutines of Channel
	ch := sub.Channel(redis.WithChannelSize(1024))
	for {
		select {
		case <-ctx.Done():
			return
		case m, ok := <-ch:
			if !ok {
				return
			}
			if id, ok := session.ParseID(m.Payload); ok {
				changed(id)
			}
		}
	}
}
