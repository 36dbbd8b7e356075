package caddymodule

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/cubeplexai/cubepod/internal/session"
)

const (
	// activityTick is how often what is new goes to Redis.
	activityTick = time.Second
	// activityEvery is how often one sandbox is written at most, were its idle
	// timeout long.
	activityEvery = 10 * time.Second
	// activityTimeout bounds one write.
	activityTimeout = 3 * time.Second
)

// activity tells the session API, through Redis, which sandboxes are in use, so
// that it pauses those that are not. What counts is what a person or a program
// does, see [Panel]; to note it costs no more than a look at a flag. All that
// is new goes out together.
type activity struct {
	rdb    redis.UniversalClient
	logger *zap.Logger

	mu   sync.Mutex // guards the fields below
	used map[session.ID]*use
}

// use is one sandbox's. Visits share it.
type use struct {
	news atomic.Bool // there was input since it was written

	// Under activity.mu.
	visits  int
	idle    time.Duration // 0: nobody wants to know
	written time.Time
}

func newActivity(rdb redis.UniversalClient, logger *zap.Logger) *activity {
	return &activity{rdb: rdb, logger: logger, used: map[session.ID]*use{}}
}

// begin gives what the input of a visit to rec's sandbox is noted on, until end
// is called.
func (a *activity) begin(rec *session.Record) *use {
	a.mu.Lock()
	defer a.mu.Unlock()
	u := a.used[rec.ID]
	if u == nil {
		u = new(use)
		a.used[rec.ID] = u
	}
	u.visits++
	u.idle = time.Duration(rec.IdleSeconds) * time.Second
	return u
}

func (a *activity) end(u *use) {
	a.mu.Lock()
	u.visits--
	a.mu.Unlock()
}

// learn takes over a changed idle timeout.
func (a *activity) learn(rec *session.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if u := a.used[rec.ID]; u != nil {
		u.idle = time.Duration(rec.IdleSeconds) * time.Second
	}
}

// note says that there was input.
func (u *use) note() {
	if !u.news.Load() {
		u.news.Store(true)
	}
}

// run writes what is new until life ends, and once more then.
func (a *activity) run(life context.Context) {
	tick := time.NewTicker(activityTick)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			a.flush(life, false)
		case <-life.Done():
			a.flush(context.WithoutCancel(life), true) // the last input counts too
			return
		}
	}
}

// flush writes what is due, or all there is.
func (a *activity) flush(ctx context.Context, all bool) {
	now := time.Now()
	due := map[session.ID]*use{}
	a.mu.Lock()
	for id, u := range a.used {
		every := min(max(u.idle/3, activityTick/2), activityEvery)
		switch since := now.Sub(u.written); {
		case u.idle > 0 && u.news.Load():
			if all || since >= every {
				u.news.Store(false)
				due[id] = u
			}
		case u.visits == 0 && since >= activityEvery:
			delete(a.used, id)
		}
	}
	a.mu.Unlock()
	if len(due) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, activityTimeout)
	defer cancel()
	_, err := a.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for id, u := range due {
			p.Set(ctx, session.ActivityKey(id), now.Unix(), 2*u.idle+time.Minute)
		}
		return nil
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, u := range due {
		if err != nil {
			u.news.Store(true)
		} else {
			u.written = now
		}
	}
	if err != nil {
		a.logger.Warn("activity was not noted, it will be later", zap.Int("sandboxes", len(due)), zap.Error(err))
	}
}
