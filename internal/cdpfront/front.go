// Package cdpfront is the guest's port 9222: it hands HTTP and WebSocket on to
// Chromium's own DevTools port and makes the addresses that Chromium gives out
// true for the client that asked.
//
// Chromium answers only requests whose Host is an address and whose WebSocket
// handshake has no Origin, and names itself by that Host. The front checks
// both before it drops them (see package loopback), so that a client behind
// any number of proxies, under any path prefix, gets a debugger URL it can
// dial. A WebSocket to the root, or to /devtools/browser, leads to the browser
// that runs at that moment, so that one address serves many of its lives.
// Nothing else of the protocol is touched.
package cdpfront

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"syscall"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/loopback"
)

// Port is the port the front serves.
const Port = 9222

const (
	dialTimeout   = 5 * time.Second
	answerTimeout = 30 * time.Second
	// wakeTimeout bounds a wake that nobody waits for any more; a cold start
	// of the desktop on a busy machine takes far less.
	wakeTimeout = 2 * time.Minute
)

// Front is the handler of port 9222, guarded by [loopback.Guard].
type Front struct {
	handler   http.Handler
	proxy     http.Handler
	transport http.RoundTripper
	upstream  string
	wake      func(context.Context) error

	life context.Context // ends with Close
	end  context.CancelFunc
	work sync.WaitGroup // requests, upgraded connections and the wake

	mu     sync.Mutex // guards the fields below
	closed bool
	waking *waking
}

// waking is one call of wake, shared by all requests that need it.
type waking struct {
	done chan struct{}
	err  error // set before done is closed
}

// New returns the front of the browser whose DevTools port is upstream, such
// as "127.0.0.1:9223". When nobody listens there and wake is not nil, wake is
// called before the request is handed on: once for all requests that arrive
// meanwhile, and only for a request that the guard let through. An
// [apierror.Error] that wake returns becomes the answer.
func New(upstream string, wake func(context.Context) error) *Front {
	life, end := context.WithCancel(context.Background())
	f := &Front{upstream: upstream, wake: wake, life: life, end: end}
	f.transport = &http.Transport{
		Proxy:       nil, // the browser is on this machine, whatever HTTP_PROXY says
		DialContext: f.dial,
		// A pooled connection may lead to a browser that was restarted
		// since, and a dial on the loopback costs next to nothing.
		DisableKeepAlives:     true,
		DisableCompression:    true,
		ResponseHeaderTimeout: answerTimeout,
	}
	f.proxy = &httputil.ReverseProxy{
		Rewrite:        f.rewrite,
		Transport:      f.transport,
		ModifyResponse: rewriteDiscovery,
		ErrorHandler:   writeError,
		// What is left to log is clients that went away.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	f.handler = loopback.Guard(Port, http.HandlerFunc(f.forward))
	return f
}

// forward hands a request that the guard let through on to the browser.
func (f *Front) forward(w http.ResponseWriter, r *http.Request) {
	if wantsBrowser(r) {
		path, err := f.browserPath(r.Context())
		if err != nil {
			writeError(w, r, err)
			return
		}
		r = r.Clone(r.Context())
		r.URL.Path, r.URL.RawPath, r.URL.RawQuery = path, "", ""
	}
	f.proxy.ServeHTTP(w, r)
}

// ServeHTTP answers one request; for a WebSocket it returns when that ends.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !f.begin() {
		writeError(w, r, apierror.New(apierror.Unavailable, "stopping", "the browser's port is being closed"))
		return
	}
	defer f.work.Done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(f.life, cancel)()
	f.handler.ServeHTTP(w, r.WithContext(ctx))
}

// Close ends every request, WebSockets included, and waits for them.
func (f *Front) Close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.end()
	f.work.Wait()
	return nil
}

// begin counts a piece of work that Close has to wait for, unless Close has
// been called.
func (f *Front) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.work.Add(1)
	return true
}

func (f *Front) rewrite(pr *httputil.ProxyRequest) {
	out := pr.Out
	out.URL.Scheme = "http"
	out.URL.RawQuery = pr.In.URL.RawQuery // /json/new?<address>: no parameters to clean
	out.URL.Host = f.upstream
	out.Host = f.upstream
	out.Header.Del("Origin")             // Chromium refuses any; the guard has checked it
	out.Header.Del("X-Forwarded-Prefix") // holds a panel token; not Chromium's business
	if isDiscovery(out.URL.Path) {
		out.Header.Del("Accept-Encoding") // the answer is read here
		pr.Out = withClientAddress(out, addressOf(pr.In))
	}
}

// dial reaches the browser, waking it first if nobody listens. It runs once a
// request was read to the end of its header, and before its body is touched,
// so the request that woke the browser is the one that is answered.
func (f *Front) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "tcp", f.upstream)
	if f.wake == nil || !refused(err) {
		return conn, err
	}
	if err := f.awake(ctx); err != nil {
		return nil, err
	}
	return d.DialContext(ctx, "tcp", f.upstream)
}

func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// awake joins the wake in progress or starts one, and waits for it. The wake
// itself belongs to the front: the next request may need it though the client
// of the first has gone.
func (f *Front) awake(ctx context.Context) error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return context.Cause(f.life)
	}
	w := f.waking
	if w == nil {
		w = &waking{done: make(chan struct{})}
		f.waking = w
		f.work.Go(func() {
			ctx, cancel := context.WithTimeout(f.life, wakeTimeout)
			defer cancel()
			w.err = f.wakeIfAsleep(ctx)
			f.mu.Lock()
			f.waking = nil
			f.mu.Unlock()
			close(w.done)
		})
	}
	f.mu.Unlock()
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-f.life.Done():
		return context.Cause(f.life)
	}
}

// wakeIfAsleep looks again first: the caller may have been refused just before
// another wake was done.
func (f *Front) wakeIfAsleep(ctx context.Context) error {
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "tcp", f.upstream)
	switch {
	case err == nil:
		return conn.Close()
	case refused(err):
		return f.wake(ctx)
	}
	return err
}

func writeError(w http.ResponseWriter, r *http.Request, err error) {
	var coded *apierror.Error
	switch {
	case errors.As(err, &coded):
	case r.Context().Err() != nil:
		err = context.Canceled
	case refused(err):
		err = apierror.Wrap(err, apierror.BadGateway, "port_closed", "no browser listens behind this port")
	case isTimeout(err):
		err = apierror.Wrap(err, apierror.Timeout, "browser_timeout", "the browser does not answer")
	default:
		err = apierror.Wrap(err, apierror.BadGateway, "browser_failed", "the browser broke off its answer")
	}
	apierror.Write(w, err)
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
