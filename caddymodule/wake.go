package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/session"
)

const (
	// wakeTimeout bounds one call of /wake, which itself is bounded.
	wakeTimeout = 2 * time.Minute
	// wakeAgain is when a call that answered "in progress" is repeated.
	wakeAgain = time.Second
)

// waker asks the session API to bring paused sandboxes back. It has no API key:
// the panel token it was shown is its right to ask.
type waker struct {
	api    string
	client *http.Client
	life   context.Context
	end    context.CancelFunc

	mu    sync.Mutex // guards the fields below
	calls map[wakeKey]*wakeCall
	work  sync.WaitGroup
}

// wakeKey tells calls apart: for a port of the desktop, /wake also starts the
// desktop.
type wakeKey struct {
	sid  session.ID
	port int
}

// wakeCall is one call that any number of requests wait for.
type wakeCall struct {
	done  chan struct{}
	ready bool
	err   error
}

func newWaker(api string) *waker {
	life, end := context.WithCancel(context.Background())
	transport := &http.Transport{Proxy: nil, IdleConnTimeout: 30 * time.Second, ResponseHeaderTimeout: wakeTimeout}
	return &waker{api: api, client: &http.Client{Transport: transport, Timeout: wakeTimeout}, life: life, end: end, calls: map[wakeKey]*wakeCall{}}
}

// close ends the calls under way and waits for them.
func (k *waker) close() {
	k.mu.Lock()
	k.end()
	k.mu.Unlock()
	k.work.Wait()
	k.client.CloseIdleConnections()
}

// wake joins or makes the call for key. It reports whether the sandbox is ready
// for the port; false without an error means the API is still at it.
func (k *waker) wake(ctx context.Context, key wakeKey, token string) (ready bool, err error) {
	if k.api == "" {
		return false, apierror.New(apierror.Unavailable, "sandbox_paused", "the sandbox is paused, and this edge cannot wake it")
	}
	k.mu.Lock()
	call := k.calls[key]
	if call == nil {
		if err := k.life.Err(); err != nil {
			k.mu.Unlock()
			return false, endShutdown.err
		}
		call = &wakeCall{done: make(chan struct{})}
		k.calls[key] = call
		// The call goes on when its first client has gone: the next reload of
		// the waiting page finds it further along.
		k.work.Go(func() {
			call.ready, call.err = k.post(key.sid, token)
			close(call.done)
			if call.ready {
				k.settle()
			}
			k.mu.Lock()
			delete(k.calls, key)
			k.mu.Unlock()
		})
	}
	k.mu.Unlock()
	select {
	case <-call.done:
		return call.ready, call.err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// settle lets a moment pass: who still believes the sandbox to be paused, since
// he looked before, is served by the call that woke it.
func (k *waker) settle() {
	t := time.NewTimer(wakeAgain)
	defer t.Stop()
	select {
	case <-t.C:
	case <-k.life.Done():
	}
}

func (k *waker) post(sid session.ID, token string) (bool, error) {
	r, err := http.NewRequestWithContext(k.life, http.MethodPost, k.api+"/sandboxes/"+string(sid)+"/wake", nil)
	if err != nil {
		return false, fmt.Errorf("wake: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := k.client.Do(r)
	if err != nil {
		return false, wakeFailed(err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return true, nil
	case http.StatusAccepted:
		return false, nil
	}
	e := apierror.Read(resp)
	switch e.Kind {
	case apierror.Forbidden, apierror.NotFound, apierror.Gone, apierror.TooMany, apierror.Unsupported:
		return false, e
	}
	return false, wakeFailed(e)
}

func wakeFailed(err error) error {
	e := apierror.Wrap(err, apierror.Unavailable, "wake_failed", "the sandbox is paused and could not be woken; try again")
	e.RetryAfter = 5 * time.Second
	return e
}

// errWaking is what a client gets while its sandbox is on the way.
var errWaking = &apierror.Error{Kind: apierror.Unavailable, Code: "sandbox_starting", Detail: "the sandbox is starting", RetryAfter: 2 * time.Second}

// awaitRunning waits, no longer than ctx, until the sandbox of rec runs, and
// wakes it if it is paused.
func (a *App) awaitRunning(ctx context.Context, rec *session.Record, port int, token string) (*session.Record, error) {
	changes, stop := a.state.records.watch(rec.ID)
	defer stop()
	tick := time.NewTicker(wakeAgain)
	defer tick.Stop()
	for {
		switch rec.State {
		case session.Running:
			return rec, nil
		case session.Paused, session.Pausing:
			if _, err := a.state.waker.wake(ctx, wakeKey{rec.ID, port}, token); err != nil {
				return nil, waiting(ctx, err)
			}
		case session.Creating, session.Resuming:
			select {
			case <-changes:
			case <-tick.C:
			case <-ctx.Done():
				return nil, waiting(ctx, ctx.Err())
			}
		default:
			return nil, stateError(rec)
		}
		next, err := a.state.records.refresh(ctx, rec.ID)
		if err != nil {
			return nil, waiting(ctx, err)
		}
		if next.State == rec.State && rec.State == session.Paused {
			select { // the API is at it, or it was paused again
			case <-changes:
			case <-tick.C:
			case <-ctx.Done():
				return nil, waiting(ctx, ctx.Err())
			}
		}
		rec = next
	}
}

// waiting is err, or errWaking when the wait is what ended.
func waiting(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		return errWaking
	}
	return err
}

// stateError is why a sandbox that does not run serves nobody.
func stateError(rec *session.Record) error {
	switch rec.State {
	case session.Deleted, session.Deleting:
		return endDeleted.err
	case session.Failed:
		return apierror.New(apierror.Unavailable, "sandbox_failed", "the sandbox failed and cannot be reached")
	case session.Creating, session.Resuming:
		return errWaking
	}
	return apierror.New(apierror.Unavailable, "sandbox_paused", "the sandbox is paused; open the panel to resume it")
}
