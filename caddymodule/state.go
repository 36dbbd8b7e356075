package caddymodule

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/cubeplexai/cubepod/internal/redisurl"
)

// states are shared by the configurations that overlap during a reload: a new
// one is provisioned before the old one is cleaned up, so what both use stays.
var states = caddy.NewUsagePool()

// stateKey tells states apart.
type stateKey struct{ redis, api string }

// state is what outlives a reload: the client of Redis, the records it knows,
// and the requests under way.
type state struct {
	rdb     redis.UniversalClient
	records *records
	visits  *visits
	used    *activity
	failing failures
	waker   *waker
	metrics *metrics

	end  context.CancelFunc
	work sync.WaitGroup // goroutines of records and used
}

// joinState finds the state of a's Redis or makes it.
func (a *App) joinState() (*state, error) {
	a.stateKey = stateKey{a.Redis, a.API}
	v, _, err := states.LoadOrNew(a.stateKey, func() (caddy.Destructor, error) {
		return newState(a.Redis, a.API, a.logger)
	})
	if err != nil {
		return nil, err
	}
	return v.(*state), nil
}

func newState(redisURL, api string, logger *zap.Logger) (*state, error) {
	opts, err := redisurl.Parse(redisURL)
	if err != nil {
		return nil, err
	}
	// A look-up stands between a person and the page: fail soon, the cache
	// goes on. What the URL sets, stays.
	if opts.MaxRetries == 0 {
		opts.MaxRetries = 1
	}
	for _, d := range []*time.Duration{&opts.DialTimeout, &opts.ReadTimeout, &opts.WriteTimeout} {
		if *d == 0 {
			*d = time.Second
		}
	}
	opts.DialerRetries = 1
	life, end := context.WithCancel(context.Background())
	s := &state{rdb: redis.NewUniversalClient(opts), metrics: newMetrics(), end: end}
	s.used = newActivity(s.rdb, logger)
	s.visits = newVisits(s.metrics, s.used)
	s.records = newRecords(life, &s.work, s.rdb, s.visits, s.metrics, logger)
	s.waker = newWaker(api)
	s.work.Go(s.records.follow)
	s.work.Go(func() { s.used.run(life) })
	return s, nil
}

// Destruct ends what is under way, waits for it, and leaves Redis.
func (s *state) Destruct() error {
	err := s.visits.close()
	s.records.stop(s.end) // nothing is added to work from here on
	s.work.Wait()
	s.waker.close()
	if cerr := s.rdb.Close(); cerr != nil && err == nil {
		err = fmt.Errorf("close redis client: %w", cerr)
	}
	return err
}

// onStopping ends all visits when the process is about to exit: Caddy waits
// for streams, without a bound unless grace_period is set. A reload emits the
// same event and must cut none.
type onStopping struct{ state *state }

// Handle implements the events app's handler.
func (o onStopping) Handle(context.Context, caddy.Event) error {
	if caddy.Exiting() {
		return o.state.visits.close()
	}
	return nil
}

// onStarted ends what the keys of a new configuration do not vouch for, once
// that configuration is in force: one that fails to start must cut no stream.
type onStarted struct{ app *App }

// Handle implements the events app's handler.
func (o onStarted) Handle(context.Context, caddy.Event) error {
	o.app.recheck()
	return nil
}
