package sessionapi

import (
	"sync"

	"golang.org/x/time/rate"

	"github.com/cubeplexai/cubepod/internal/apierror"
)

// limits slow down callers who ask too much of this server. Each replica has its
// own: a count that is shared would cost every call a round trip.
type limits struct {
	perSecond rate.Limit

	mu sync.Mutex // guards the fields below
	by map[string]*rate.Limiter
}

// newLimits gives limits that never bind when perSecond is 0.
func newLimits(perSecond float64) *limits {
	return &limits{perSecond: rate.Limit(perSecond), by: map[string]*rate.Limiter{}}
}

// take counts a request of caller, or says when to come again.
func (l *limits) take(caller Caller) error {
	if l.perSecond == 0 {
		return nil
	}
	l.mu.Lock()
	bucket := l.by[caller.Name]
	if bucket == nil { // callers are named in a file, so there are not many
		bucket = rate.NewLimiter(l.perSecond, max(1, int(2*l.perSecond)))
		l.by[caller.Name] = bucket
	}
	l.mu.Unlock()
	r := bucket.Reserve()
	wait := r.Delay()
	if wait == 0 {
		return nil
	}
	r.Cancel()
	err := apierror.New(apierror.TooMany, "rate_limited", "the API key makes more than %g requests a second", float64(l.perSecond))
	err.RetryAfter = wait
	return err
}
