package caddymodule

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/session"
)

const (
	// recordFresh is how long a record is used without a second thought.
	recordFresh = 10 * time.Second
	// recordUsable is how long it is used while a refresh is on its way.
	recordUsable = 30 * time.Second
	// recordKept is how long one is remembered after Redis last gave it: for so
	// long a Redis that fails is bridged for the sandboxes in use, which were
	// read within recordUsable before it failed. Afterwards they are unknown.
	recordKept = time.Hour
	// lookupTimeout bounds one look-up, retries and dialling included.
	lookupTimeout = 3 * time.Second
	// downFor is how long a failed Redis is left alone.
	downFor = time.Second
	// recheckEvery is how often the sandboxes with visits are looked up though
	// nobody asks: a lost message must not keep a revoked stream alive.
	recheckEvery = 10 * time.Second
)

// records are the sandbox records the edge knows.
//
// A record is looked up once for all who ask, used for a few seconds, and
// dropped when the API announces a change. Messages may be lost with a
// connection, so a new subscription makes all records suspect. A suspect record
// is served only while Redis fails; what Redis says is gone, is gone.
type records struct {
	rdb     redis.UniversalClient
	visits  *visits
	metrics *metrics
	logger  *zap.Logger
	life    context.Context
	work    *sync.WaitGroup

	mu        sync.RWMutex // guards the fields below
	known     map[session.ID]*known
	lookups   map[session.ID]*lookup
	watchers  map[session.ID]map[chan struct{}]struct{}
	epoch     int // raised by each subscription
	downUntil time.Time
}

// known is one record. It is never changed once stored.
type known struct {
	rec     *session.Record
	at      time.Time
	epoch   int
	suspect bool
}

// lookup is a read of Redis that any number of callers wait for.
type lookup struct {
	done     chan struct{}
	outdated bool // a change was announced after the read began; under records.mu
	rec      *session.Record
	err      error
}

func newRecords(life context.Context, work *sync.WaitGroup, rdb redis.UniversalClient, v *visits, m *metrics, logger *zap.Logger) *records {
	return &records{
		rdb: rdb, visits: v, metrics: m, logger: logger, life: life, work: work,
		known:    map[session.ID]*known{},
		lookups:  map[session.ID]*lookup{},
		watchers: map[session.ID]map[chan struct{}]struct{}{},
	}
}

// errNoSandbox is what Redis knows nothing of.
var errNoSandbox = apierror.New(apierror.NotFound, "sandbox_not_found", "there is no such sandbox")

// get gives the record of id. It reports [errNoSandbox], and
// apierror.Unavailable when Redis fails and the record was not known.
func (r *records) get(ctx context.Context, id session.ID) (*session.Record, error) {
	r.mu.RLock()
	k, epoch := r.known[id], r.epoch
	r.mu.RUnlock()
	if k != nil && !k.suspect && k.epoch == epoch {
		age := time.Since(k.at)
		if age > recordFresh && age < recordUsable {
			r.look(id)
		}
		if age < recordUsable {
			r.metrics.lookup("cache")
			return k.rec, nil
		}
	}
	rec, err := r.wait(ctx, r.look(id))
	switch {
	case err == nil:
		r.metrics.lookup("redis")
		return rec, nil
	case errors.Is(err, errNoSandbox):
		r.metrics.lookup("redis")
		return nil, err
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case k != nil && time.Since(k.at) <= recordKept:
		r.metrics.lookup("stale")
		return k.rec, nil
	}
	r.metrics.lookup("error")
	return nil, &apierror.Error{Kind: apierror.Unavailable, Code: "store_unavailable", Err: err, RetryAfter: 2 * time.Second,
		Detail: "the store of sandboxes does not answer; try again"}
}

// refresh gives the record of id as Redis has it now.
func (r *records) refresh(ctx context.Context, id session.ID) (*session.Record, error) {
	r.doubt(id)
	return r.get(ctx, id)
}

func (r *records) wait(ctx context.Context, l *lookup) (*session.Record, error) {
	select {
	case <-l.done:
		return l.rec, l.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// look starts reading the record of id, or joins the read under way.
func (r *records) look(id session.ID) *lookup {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.lookups[id]; l != nil {
		return l
	}
	l := &lookup{done: make(chan struct{})}
	if err := r.life.Err(); err != nil || time.Now().Before(r.downUntil) {
		l.err = errors.Join(errors.New("redis failed a moment ago"), err)
		close(l.done)
		return l
	}
	r.lookups[id] = l
	// The read serves all who wait for it, so it does not end with the request
	// that began it.
	epoch := r.epoch
	r.work.Go(func() { r.read(id, l, epoch) })
	return l
}

func (r *records) read(id session.ID, l *lookup, epoch int) {
	ctx, cancel := context.WithTimeout(r.life, lookupTimeout)
	defer cancel()
	l.rec, l.err = r.fetch(ctx, id)
	now := time.Now()
	r.mu.Lock()
	if r.lookups[id] == l {
		delete(r.lookups, id)
	}
	answered := l.err == nil || errors.Is(l.err, errNoSandbox)
	switch {
	case !answered:
		r.downUntil = now.Add(downFor)
	case l.err != nil:
		if !l.outdated {
			delete(r.known, id)
		}
	case !l.outdated:
		r.known[id] = &known{rec: l.rec, at: now, epoch: epoch}
	case r.known[id] == nil: // better than nothing, should Redis fail
		r.known[id] = &known{rec: l.rec, at: now, epoch: epoch, suspect: true}
	}
	r.mu.Unlock()
	close(l.done)
	if answered {
		r.visits.reconcile(id, l.rec)
		r.notify(id)
	} else {
		r.logger.Warn("record look-up failed", zap.Error(l.err))
	}
}

func (r *records) fetch(ctx context.Context, id session.ID) (*session.Record, error) {
	doc, err := r.rdb.HGet(ctx, session.RecordKey(id), session.DocField).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, errNoSandbox
	}
	if err != nil {
		return nil, err
	}
	return session.Decode(doc)
}

// stop calls end, which ends r.life, so that no look-up starts any more.
func (r *records) stop(end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	end()
}

// doubt makes what is known of id suspect, so that the next who asks waits for
// Redis.
func (r *records) doubt(id session.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.known[id]; k != nil && !k.suspect {
		r.known[id] = &known{rec: k.rec, at: k.at, epoch: k.epoch, suspect: true}
	}
	if l := r.lookups[id]; l != nil {
		l.outdated = true
		delete(r.lookups, id)
	}
}

// doubtAll makes every record suspect.
func (r *records) doubtAll() {
	r.mu.Lock()
	r.epoch++
	for id, l := range r.lookups {
		l.outdated = true
		delete(r.lookups, id)
	}
	r.mu.Unlock()
}

// follow listens for changes until the edge ends.
func (r *records) follow() {
	ps := r.rdb.Subscribe(r.life, session.ChangedChannel)
	defer ps.Close()
	events := ps.ChannelWithSubscriptions(redis.WithChannelSize(1000))
	tick := time.NewTicker(recheckEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.life.Done():
			return
		case e, ok := <-events:
			if !ok {
				return
			}
			switch e := e.(type) {
			case *redis.Subscription: // the first, or one after a reconnect
				r.doubtAll()
				r.recheck()
			case *redis.Message:
				r.changed(e.Payload)
			}
		case <-tick.C:
			r.forgetUnused()
			r.recheck()
		}
	}
}

func (r *records) changed(payload string) {
	id, ok := session.ParseID(payload)
	if !ok {
		return
	}
	r.doubt(id)
	r.mu.RLock()
	watched := len(r.watchers[id]) > 0
	r.mu.RUnlock()
	if watched || r.visits.any(id) {
		r.look(id)
	}
}

// recheck looks up every sandbox that has visits.
func (r *records) recheck() {
	for _, id := range r.visits.sandboxes() {
		r.look(id)
	}
}

func (r *records) forgetUnused() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, k := range r.known {
		if time.Since(k.at) > recordKept {
			delete(r.known, id)
		}
	}
}

// watch gives a channel that gets a value after each look-up of id, until stop
// is called.
func (r *records) watch(id session.ID) (changes <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	r.mu.Lock()
	if r.watchers[id] == nil {
		r.watchers[id] = map[chan struct{}]struct{}{}
	}
	r.watchers[id][ch] = struct{}{}
	r.mu.Unlock()
	return ch, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.watchers[id], ch)
		if len(r.watchers[id]) == 0 {
			delete(r.watchers, id)
		}
	}
}

func (r *records) notify(id session.ID) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for ch := range r.watchers[id] {
		select {
		case ch <- struct{}{}:
		default: // it has news to read already
		}
	}
}
