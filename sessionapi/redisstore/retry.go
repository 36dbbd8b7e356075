package redisstore

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// retryFor is how long a call waits for a Redis that cannot be reached.
	// After as many failed dials as it has connections, the client's pool dials
	// once a second and meanwhile hands out its last error to everybody: a
	// Redis that is back looks down for that long. This outlasts one round.
	retryFor = 1500 * time.Millisecond
	// retryPause is the time between two tries.
	retryPause = 50 * time.Millisecond
)

// again repeats f, which has failed with err, until it gets through, fails in
// another way, or the time for it is over. Every call of this package may be
// repeated: the client does it too, when an answer is lost.
func again(ctx context.Context, err error, f func(context.Context) error) error {
	over := time.NewTimer(retryFor)
	defer over.Stop()
	tick := time.NewTicker(retryPause)
	defer tick.Stop()
	for disconnected(err) {
		select {
		case <-tick.C:
			err = f(ctx)
		case <-over.C:
			return err
		case <-ctx.Done():
			return err
		}
	}
	return err
}

// disconnected reports whether err says that no Redis was there to answer, or
// only one that is on its way up or down.
func disconnected(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var dial *net.OpError
	switch {
	case errors.As(err, &dial) && dial.Op == "dial":
		return true
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return true
	}
	return redis.IsLoadingError(err) || redis.IsReadOnlyError(err) || redis.IsMasterDownError(err) || redis.IsClusterDownError(err)
}
