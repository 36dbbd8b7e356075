package redisstore

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/cubeplexai/cubepod/internal/session"
)

// Place implements sessionapi.Store.
func (s *Store) Place(ctx context.Context, rec *session.Record) error {
	return s.op(ctx, "place sandbox", func(ctx context.Context) error {
		return s.rdb.ZAdd(ctx, session.SandboxesKey, redis.Z{Score: float64(rec.CreatedAt.UnixMilli()), Member: string(rec.ID)}).Err()
	})
}

// Offer implements sessionapi.Store.
func (s *Store) Offer(ctx context.Context, template string, id session.ID) error {
	return s.op(ctx, "offer standby", func(ctx context.Context) error {
		return s.rdb.SAdd(ctx, session.StandbysKey(template), string(id)).Err()
	})
}

// Claim implements sessionapi.Store. One that is lost with an answer is offered
// again by the audit.
func (s *Store) Claim(ctx context.Context, template string) (session.ID, error) {
	var name string
	err := s.op(ctx, "claim standby", func(ctx context.Context) (err error) {
		name, err = s.rdb.SPop(ctx, session.StandbysKey(template)).Result()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		return err
	})
	return session.ID(name), err
}

// Withdraw implements sessionapi.Store.
func (s *Store) Withdraw(ctx context.Context, template string, id session.ID) (bool, error) {
	var n int64
	err := s.op(ctx, "withdraw standby", func(ctx context.Context) (err error) {
		n, err = s.rdb.SRem(ctx, session.StandbysKey(template), string(id)).Result()
		return err
	})
	return n > 0, err
}

// Standbys implements sessionapi.Store.
func (s *Store) Standbys(ctx context.Context, template string) ([]session.ID, error) {
	var ids []session.ID
	err := s.op(ctx, "list standbys", func(ctx context.Context) error {
		names, err := s.rdb.SMembers(ctx, session.StandbysKey(template)).Result()
		ids = nil
		for _, name := range names {
			ids = append(ids, session.ID(name))
		}
		return err
	})
	return ids, err
}
