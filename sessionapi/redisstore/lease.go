package redisstore

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/sessionapi"
)

// Acquire implements sessionapi.Store.
func (s *Store) Acquire(ctx context.Context, id session.ID, ttl time.Duration) (sessionapi.Lease, error) {
	lease := sessionapi.Lease{ID: id, Holder: rand.Text()}
	err := s.op(ctx, "acquire lease", func(ctx context.Context) (err error) {
		lease.Fence, err = acquireScript.Run(ctx, s.rdb, []string{session.RecordKey(id), session.LeaseKey(id)},
			lease.Holder, ttl.Milliseconds()).Int64()
		return err
	})
	switch {
	case err != nil:
		return sessionapi.Lease{}, err
	case lease.Fence < 0:
		return sessionapi.Lease{}, sessionapi.NotFound(id)
	case lease.Fence == 0:
		return sessionapi.Lease{}, sessionapi.ErrLeaseHeld
	}
	return lease, nil
}

// Renew implements sessionapi.Store.
func (s *Store) Renew(ctx context.Context, l sessionapi.Lease, ttl time.Duration) error {
	var kept bool
	err := s.op(ctx, "renew lease", func(ctx context.Context) (err error) {
		kept, err = renewScript.Run(ctx, s.rdb, []string{session.LeaseKey(l.ID)}, l.Holder, ttl.Milliseconds()).Bool()
		return err
	})
	if err == nil && !kept {
		return sessionapi.ErrLeaseLost
	}
	return err
}

// Release implements sessionapi.Store.
func (s *Store) Release(ctx context.Context, l sessionapi.Lease) error {
	return s.op(ctx, "release lease", func(ctx context.Context) error {
		return releaseScript.Run(ctx, s.rdb, []string{session.LeaseKey(l.ID)}, l.Holder, session.ChangedChannel, string(l.ID)).Err()
	})
}

// Deployment implements sessionapi.Store.
func (s *Store) Deployment(ctx context.Context) (string, error) {
	var name string
	err := s.op(ctx, "read deployment", func(ctx context.Context) error {
		fresh := strings.ToLower(rand.Text())
		if err := s.rdb.SetNX(ctx, deploymentKey, fresh, 0).Err(); err != nil {
			return err
		}
		var err error
		name, err = s.rdb.Get(ctx, deploymentKey).Result()
		return err
	})
	return name, err
}

// Time implements sessionapi.Store.
func (s *Store) Time(ctx context.Context) (time.Time, error) {
	var now time.Time
	err := s.op(ctx, "read time", func(ctx context.Context) (err error) {
		now, err = s.rdb.Time(ctx).Result()
		return err
	})
	return now, err
}

// Lead implements sessionapi.Store.
func (s *Store) Lead(ctx context.Context, holder string, ttl time.Duration) (bool, error) {
	var leads bool
	err := s.op(ctx, "lead", func(ctx context.Context) (err error) {
		leads, err = leadScript.Run(ctx, s.rdb, []string{janitorKey}, holder, ttl.Milliseconds()).Bool()
		return err
	})
	return leads, err
}
