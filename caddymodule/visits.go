package caddymodule

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/paneltoken"
	"github.com/cubeplexai/cubepod/internal/session"
)

// visitsCloseTimeout bounds the wait for requests that were told to end.
const visitsCloseTimeout = 10 * time.Second

// ending is why the edge ends a visit.
type ending struct {
	err    *apierror.Error // what a request without an answer yet gets
	status uint16          // of the WebSocket close frame, RFC 6455 §7.4.1
	reason string          // label of the metric, text of the close frame
}

const (
	closeGoingAway = 1001
	closePolicy    = 1008
)

var (
	endExpired  = &ending{apierror.New(apierror.Forbidden, "token_expired", "this panel link has expired"), closePolicy, "expired"}
	endRevoked  = &ending{apierror.New(apierror.Forbidden, "token_revoked", "this panel link was revoked"), closePolicy, "revoked"}
	endKey      = &ending{apierror.New(apierror.Forbidden, "token_invalid", "the key of this panel link was withdrawn"), closePolicy, "key_withdrawn"}
	endDeleted  = &ending{apierror.New(apierror.Gone, "sandbox_deleted", "the sandbox was deleted"), closePolicy, "deleted"}
	endPort     = &ending{apierror.New(apierror.NotFound, "port_not_found", "the port is no longer registered"), closePolicy, "unregistered"}
	endStopped  = &ending{apierror.New(apierror.Unavailable, "sandbox_paused", "the sandbox was paused"), closeGoingAway, "paused"}
	endViewOnly = &ending{errViewDoes, closePolicy, "view_only"}
	endShutdown = &ending{apierror.New(apierror.Unavailable, "edge_stopping", "the edge is shutting down"), closeGoingAway, "shutdown"}
)

// visits are the panel requests under way, streams included. They outlive a
// reload of the configuration; see [state].
type visits struct {
	metrics  *metrics
	activity *activity

	mu      sync.Mutex // guards the fields below
	open    map[session.ID]map[*visit]struct{}
	clients map[netip.Prefix]int
	revoked map[session.ID]time.Time // here, by the operator
	closed  bool
	work    sync.WaitGroup // visits, and what ends them
}

// visit is one panel request, from the check of its token to the end of its
// response or stream.
type visit struct {
	all         *visits
	token       string
	sid         session.ID
	port        int
	client      netip.Prefix
	gen         int64 // 0 is not checked
	incarnation int64
	ended       <-chan struct{}
	cancel      context.CancelCauseFunc
	expiry      *time.Timer
	use         *use

	mu     sync.Mutex // guards the fields below
	stream *frameWriter
	active bool // counted in the gauge
	over   bool // done was called
	ending *ending
}

func newVisits(m *metrics, a *activity) *visits {
	return &visits{metrics: m, activity: a, open: map[session.ID]map[*visit]struct{}{}, clients: map[netip.Prefix]int{}, revoked: map[session.ID]time.Time{}}
}

// begin registers a visit. Its context ends when the token does, or the
// sandbox, or the edge; the cause is an *[apierror.Error]. The caller calls
// done when the response is complete.
func (vs *visits) begin(ctx context.Context, token string, c paneltoken.Claims, rec *session.Record, client netip.Prefix, lim limits) (*visit, context.Context, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	v := &visit{all: vs, token: token, sid: rec.ID, port: c.Port, client: client, gen: c.Gen, incarnation: rec.Incarnation, ended: ctx.Done(), cancel: cancel}
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if err := vs.refused(c, v, lim); err != nil {
		cancel(nil)
		return nil, nil, err
	}
	vs.clients[client]++
	if vs.open[v.sid] == nil {
		vs.open[v.sid] = map[*visit]struct{}{}
	}
	vs.open[v.sid][v] = struct{}{}
	vs.work.Add(1)
	v.use = vs.activity.begin(rec)
	left := time.Until(c.Expires)
	if left <= 0 { // accepted within the leeway for clocks
		left += paneltoken.Leeway
	}
	v.expiry = time.AfterFunc(left, func() { v.end(endExpired) })
	return v, ctx, nil
}

// refused says why v may not begin. The lock is held.
func (vs *visits) refused(c paneltoken.Claims, v *visit, lim limits) error {
	switch at, revoked := vs.revoked[v.sid]; {
	case vs.closed:
		return endShutdown.err
	case revoked && !c.IssuedAt.After(at):
		return endRevoked.err
	case lim.perSandbox > 0 && len(vs.open[v.sid]) >= lim.perSandbox:
		return errSandboxBusy
	case lim.perClient > 0 && vs.clients[v.client] >= lim.perClient:
		return errClientBusy
	}
	return nil
}

// revoke ends the visits of a sandbox and refuses the tokens made until now.
// It gives the number of visits.
func (vs *visits) revoke(id session.ID) int {
	vs.mu.Lock()
	vs.revoked[id] = time.Now()
	vs.mu.Unlock()
	open := vs.of(id)
	for _, v := range open {
		v.end(endRevoked)
	}
	return len(open)
}

// done ends the visit's registration.
func (v *visit) done() {
	v.expiry.Stop()
	v.cancel(nil)
	v.all.activity.end(v.use)
	v.mu.Lock()
	v.over = true
	if v.active {
		v.all.metrics.active.Dec()
	}
	w := v.stream
	v.mu.Unlock()
	if w != nil {
		w.stop()
	}
	vs := v.all
	vs.mu.Lock()
	if vs.clients[v.client]--; vs.clients[v.client] == 0 {
		delete(vs.clients, v.client)
	}
	delete(vs.open[v.sid], v)
	if len(vs.open[v.sid]) == 0 {
		delete(vs.open, v.sid)
	}
	vs.mu.Unlock()
	vs.work.Done()
}

// streaming counts the visit as an active session. For a WebSocket, w is what
// a close frame goes through.
func (v *visit) streaming(w *frameWriter) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.active {
		v.active = true
		v.all.metrics.active.Inc()
	}
	v.stream = w
	if v.ending != nil && w != nil { // it ended while the handshake was under way
		v.all.closeStream(v, w, v.ending)
	}
}

// end ends the visit: a WebSocket after a close frame, the rest at once.
func (v *visit) end(e *ending) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ending != nil || v.over {
		return
	}
	v.ending = e
	v.all.metrics.closed(e.reason)
	if v.stream == nil {
		v.cancel(e.err)
		return
	}
	v.all.closeStream(v, v.stream, e)
}

// refuse ends the visit of a looker-on who tried more, and waits until it is
// over: the reader it stops must not be faster than the close frame.
func (v *visit) refuse() error {
	v.end(endViewOnly)
	<-v.ended
	return errStreamClosed
}

// why gives why the edge ended the visit, if it did.
func (v *visit) why() *ending {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.ending
}

// closeStream says goodbye on w, which may take a moment, and then ends the
// visit. The visit is not over, so the group is not empty.
func (vs *visits) closeStream(v *visit, w *frameWriter, e *ending) {
	vs.work.Go(func() {
		w.close(e.status, e.reason)
		v.cancel(e.err)
	})
}

// reconcile ends the visits that rec no longer allows. A nil rec is a sandbox
// that is gone.
func (vs *visits) reconcile(id session.ID, rec *session.Record) {
	if rec != nil {
		vs.activity.learn(rec)
	}
	for _, v := range vs.of(id) {
		if e := v.refusedBy(rec); e != nil {
			v.end(e)
		}
	}
}

func (v *visit) refusedBy(rec *session.Record) *ending {
	switch {
	case rec == nil, rec.State == session.Deleted, rec.State == session.Deleting:
		return endDeleted
	case v.gen != 0 && v.gen < rec.Gen:
		return endRevoked
	case rec.State != session.Running, rec.Incarnation != v.incarnation:
		return endStopped
	}
	if _, ok := rec.Ports[v.port]; !ok {
		return endPort
	}
	return nil
}

// recheck ends the visits whose tokens no key of keys signed.
func (vs *visits) recheck(keys *paneltoken.Verifier) {
	for _, id := range vs.sandboxes() {
		for _, v := range vs.of(id) {
			if !signedBy(keys, v.token) {
				v.end(endKey)
			}
		}
	}
}

// signedBy reports whether one of keys signed token, be it expired or not.
func signedBy(keys *paneltoken.Verifier, token string) bool {
	_, err := keys.Verify(token)
	return err == nil || errors.Is(err, paneltoken.ErrExpired)
}

func (vs *visits) of(id session.ID) []*visit {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	out := make([]*visit, 0, len(vs.open[id]))
	for v := range vs.open[id] {
		out = append(out, v)
	}
	return out
}

// any reports whether id has visits.
func (vs *visits) any(id session.ID) bool {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	return len(vs.open[id]) > 0
}

// sandboxes lists the sandboxes that have visits.
func (vs *visits) sandboxes() []session.ID {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	out := make([]session.ID, 0, len(vs.open))
	for id := range vs.open {
		out = append(out, id)
	}
	return out
}

// close ends all visits, lets no new ones begin, and waits for them.
func (vs *visits) close() error {
	vs.mu.Lock()
	vs.closed = true
	vs.mu.Unlock()
	for _, id := range vs.sandboxes() {
		for _, v := range vs.of(id) {
			v.end(endShutdown)
		}
	}
	gone := make(chan struct{})
	go func() { // ends with the last visit
		vs.work.Wait()
		close(gone)
	}()
	bound := time.NewTimer(visitsCloseTimeout)
	defer bound.Stop()
	select {
	case <-gone:
		return nil
	case <-bound.C:
		return errors.New("some panel requests did not end in time")
	}
}
