package sessionapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
)

// A call into podd can take as long as the command it runs, so no deadline fits
// it. But a podd that was stopped, say by root of the guest with a debugger,
// takes connections and never answers. While calls wait for a podd it is
// therefore asked for its health now and then, and when it has given no sign of
// life for a while all of them end.

// errSilent is what calls end with that waited for such a podd.
var errSilent = apierror.New(apierror.BadGateway, "podd_unreachable", "the sandbox's daemon has stopped answering")

// pulses are the podds that calls wait for.
type pulses struct {
	// silence is how long a podd may give no sign of life.
	silence time.Duration

	mu sync.Mutex // guards the field below
	by map[string]*pulse
}

// pulse is one podd while calls wait for it. Its goroutine lives as long as the
// calls do; the last one to leave waits for it.
type pulse struct {
	host  string
	calls int // guarded by the mutex of pulses
	heard atomic.Bool
	ctx   context.Context // ends with the calls, or because of errSilent
	end   context.CancelCauseFunc
	done  chan struct{}
}

func (p *pulses) join(v *poddVia) *pulse {
	p.mu.Lock()
	defer p.mu.Unlock()
	pl := p.by[v.host]
	if pl == nil || pl.ctx.Err() != nil { // those who still leave that one know it
		pl = &pulse{host: v.host, done: make(chan struct{})}
		pl.ctx, pl.end = context.WithCancelCause(context.Background())
		p.by[v.host] = pl
		go p.watch(pl, v)
	}
	pl.calls++
	return pl
}

func (p *pulses) leave(pl *pulse) {
	p.mu.Lock()
	pl.calls--
	last := pl.calls == 0
	if last && p.by[pl.host] == pl {
		delete(p.by, pl.host)
	}
	p.mu.Unlock()
	if last {
		pl.end(nil)
		<-pl.done
	}
}

// watch asks podd until nobody waits for it any more, or it is silent.
func (p *pulses) watch(pl *pulse, v *poddVia) {
	defer close(pl.done)
	beat := time.NewTicker(p.silence / 3)
	defer beat.Stop()
	last := time.Now()
	for {
		select {
		case <-beat.C:
		case <-pl.ctx.Done():
			return
		}
		heard := pl.heard.Swap(false)
		if !heard {
			// To the end of its time: a slow answer is an answer.
			ctx, cancel := context.WithDeadline(pl.ctx, last.Add(p.silence))
			heard = v.lives(ctx)
			cancel()
		}
		if heard {
			last = time.Now()
		} else if time.Since(last) >= p.silence {
			pl.end(errSilent)
			return
		}
	}
}

// attend sends r and ends it, and the reading of its answer, when podd falls
// silent.
func (p *pulses) attend(v *poddVia, r *http.Request) (*http.Response, error) {
	pl := p.join(v)
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(pl.ctx, func() { cancel(context.Cause(pl.ctx)) })
	over := sync.OnceFunc(func() {
		stop()
		cancel(nil)
		p.leave(pl)
	})
	resp, err := v.send(r.WithContext(ctx))
	if err != nil {
		if silent := context.Cause(pl.ctx); errors.Is(silent, errSilent) && r.Context().Err() == nil {
			err = silent
		}
		over()
		return nil, err
	}
	pl.heard.Store(true)
	resp.Body = &attendedBody{resp.Body, over}
	return resp, nil
}

// attendedBody is the body of an answer.
type attendedBody struct {
	io.ReadCloser
	over func()
}

// Close gives the call up.
func (b *attendedBody) Close() error {
	defer b.over()
	return b.ReadCloser.Close()
}
