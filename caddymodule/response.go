package caddymodule

import (
	"bufio"
	"bytes"
	"io"
	"mime"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// sandboxPolicy makes each panel document an origin of its own: all panels
// share one, and a page of one sandbox must not touch another's.
const sandboxPolicy = "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads allow-pointer-lock"

// notTheGuests are response headers that would act on the whole origin, or
// forbid the frame a panel lives in.
var notTheGuests = []string{
	"X-Frame-Options", "Service-Worker-Allowed", "Clear-Site-Data", "Strict-Transport-Security",
	"Content-Security-Policy-Report-Only", "Nel", "Report-To", "Reporting-Endpoints", "Origin-Agent-Cluster",
}

// hygiene is how a panel's response headers are treated.
type hygiene struct {
	rebaser
	trusted        bool // the guests may share the panels' origin
	ownHost        bool // each sandbox has one
	frameAncestors string
}

// responseWriter cleans the headers of a panel's response once, before they
// are sent, and knows what became of it.
type responseWriter struct {
	http.ResponseWriter
	hygiene
	request  *http.Request
	logURI   string      // the request's address without the token
	own      http.Header // what the operator's handlers had set before
	extended bool        // a WebSocket of HTTP/2 or HTTP/3
	upgrade  bool        // the request asks for a WebSocket
	visit    *visit      // nil until the token is checked
	keep     string      // the token to keep in the panel cookie
	hidden   *hiddenHeaders
	client   *clientFrames // what the client says on a WebSocket

	status int
	size   int64
	frames *frameWriter // of a WebSocket that is not hijacked
}

func newResponseWriter(w http.ResponseWriter, r *http.Request, h hygiene) *responseWriter {
	rw := &responseWriter{ResponseWriter: w, hygiene: h, request: r, extended: extendedWebSocket(r)}
	rw.upgrade = rw.extended || isWebSocket(r)
	for _, name := range notTheGuests {
		if v := w.Header()[name]; v != nil {
			if rw.own == nil {
				rw.own = http.Header{}
			}
			rw.own[name] = slices.Clone(v)
		}
	}
	return rw
}

// Unwrap lets an http.ResponseController find what is not here.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// wrote reports whether the response has begun.
func (w *responseWriter) wrote() bool { return w.status != 0 }

// WriteHeader cleans the header and sends it.
func (w *responseWriter) WriteHeader(status int) {
	if w.wrote() {
		return
	}
	if status >= 100 && status < 200 && status != http.StatusSwitchingProtocols {
		return // no informational response leaves a panel
	}
	w.status = status
	w.clean(w.Header())
	w.ResponseWriter.WriteHeader(status)
	switch {
	case w.visit == nil:
	case w.extended && status == http.StatusOK:
		// Deadlines are set while others write, and of the writers in the chain
		// only the server's own takes that.
		ctl := http.NewResponseController(innermost(w.ResponseWriter))
		w.frames = newFrameWriter(w.ResponseWriter.Write, func(t time.Time) error {
			_ = ctl.SetReadDeadline(t)
			return ctl.SetWriteDeadline(t)
		})
		w.frames.flush = http.NewResponseController(w.ResponseWriter).Flush
		w.visit.streaming(w.frames)
	case isEventStream(w.Header()):
		w.visit.streaming(nil)
	}
}

// Write sends a part of the body, or of a WebSocket.
func (w *responseWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	var n int
	var err error
	if w.frames != nil {
		n, err = w.frames.Write(p)
	} else {
		n, err = w.ResponseWriter.Write(p)
	}
	w.size += int64(n)
	return n, err
}

// ReadFrom sends the rest of r.
func (w *responseWriter) ReadFrom(r io.Reader) (int64, error) {
	w.WriteHeader(http.StatusOK)
	if rf, ok := w.ResponseWriter.(io.ReaderFrom); ok && w.frames == nil {
		n, err := rf.ReadFrom(r)
		w.size += n
		return n, err
	}
	return io.Copy(struct{ io.Writer }{w}, r)
}

// FlushError sends what is buffered.
func (w *responseWriter) FlushError() error {
	w.WriteHeader(http.StatusOK)
	if w.frames != nil {
		return w.frames.Flush()
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// innermost is the writer that all others wrap.
func innermost(w http.ResponseWriter) http.ResponseWriter {
	for {
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = u.Unwrap()
	}
}

// Hijack takes over the client's connection after a 101.
func (w *responseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, brw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil || w.visit == nil {
		return conn, brw, err
	}
	if !w.upgrade { // some other protocol: there is nothing to say at its end
		w.visit.streaming(nil)
		return &notedConn{conn, w.visit.use}, brw, nil
	}
	frames := newFrameWriter(conn.Write, conn.SetDeadline)
	w.visit.streaming(frames)
	stream := &streamConn{Conn: conn, frames: frames}
	// What came with the handshake is followed like the rest, and the buffers,
	// which a stream has no use for, are let go.
	early, err := brw.Peek(brw.Reader.Buffered())
	if err != nil {
		return conn, brw, err
	}
	if err := brw.Flush(); err != nil {
		return conn, brw, err
	}
	w.client.src = conn
	if len(early) > 0 {
		w.client.src = io.MultiReader(bytes.NewReader(bytes.Clone(early)), conn)
	}
	stream.client = w.client
	return stream, bufio.NewReadWriter(bufio.NewReaderSize(stream, 16), bufio.NewWriterSize(stream, 1)), nil
}

// clean makes a guest's header fit for an origin that is not the guest's.
func (w *responseWriter) clean(h http.Header) {
	if w.hidden != nil {
		restore(h, w.hidden.response)
	}
	for _, name := range []string{"Location", "Content-Location"} {
		rewrite(h[name], w.location)
	}
	rewrite(h["Refresh"], w.refresh)
	if isEventStream(h) {
		keepAsIs(h)
	}
	if w.ownHost {
		if cookies := h["Set-Cookie"]; cookies != nil {
			h["Set-Cookie"] = ownHostCookies(cookies)
		}
	} else {
		rewrite(h["Set-Cookie"], w.cookie)
	}
	for _, name := range notTheGuests {
		delete(h, name)
		if v := w.own[name]; v != nil {
			h[name] = v
		}
	}
	if w.client != nil && w.client.filter {
		h.Del("Sec-WebSocket-Extensions")
	}
	rewrite(h["Content-Security-Policy"], withoutFrameAncestors)
	h.Set("Referrer-Policy", "same-origin")
	if w.keep != "" && w.visit != nil {
		setPanelCookie(h, w.request, w.keep)
	}
	if w.frameAncestors != "" {
		h.Add("Content-Security-Policy", "frame-ancestors "+w.frameAncestors)
	}
	if w.trusted {
		return
	}
	h.Add("Content-Security-Policy", sandboxPolicy)
	// A document of an opaque origin is a stranger to its own files.
	h.Set("Access-Control-Allow-Origin", "*")
	h.Del("Access-Control-Allow-Credentials")
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
}

// keepAsIs has nobody between here and the client compress a response, the
// operator's encode handler included: that may hold events back.
func keepAsIs(h http.Header) {
	switch v := strings.Join(h["Cache-Control"], ", "); {
	case v == "":
		h.Set("Cache-Control", "no-transform")
	case !strings.Contains(strings.ToLower(v), "no-transform"):
		h.Set("Cache-Control", v+", no-transform")
	}
}

func rewrite(values []string, by func(string) string) {
	for i, v := range values {
		values[i] = by(v)
	}
}

// withoutFrameAncestors takes the directive out of one or more policies that
// forbids, or allows, who may frame the guest: only the operator knows.
func withoutFrameAncestors(policies string) string {
	var out []string
	for policy := range strings.SplitSeq(policies, ",") {
		var keep []string
		for d := range strings.SplitSeq(policy, ";") {
			name, _, _ := strings.Cut(strings.TrimSpace(d), " ")
			if name != "" && !strings.EqualFold(name, "frame-ancestors") {
				keep = append(keep, strings.TrimSpace(d))
			}
		}
		if len(keep) > 0 {
			out = append(out, strings.Join(keep, "; "))
		}
	}
	return strings.Join(out, ", ")
}

func isEventStream(h http.Header) bool {
	const name = "text/event-stream"
	v := h.Get("Content-Type")
	if len(v) < len(name) || !strings.EqualFold(v[:len(name)], name) {
		return false // most answers, without taking the value apart
	}
	t, _, err := mime.ParseMediaType(v)
	return err == nil && t == name
}

// isWebSocket reports whether r asks to upgrade an HTTP/1.1 connection.
func isWebSocket(r *http.Request) bool {
	return hasToken(r.Header["Connection"], "upgrade") && hasToken(r.Header["Upgrade"], "websocket")
}

// extendedWebSocket reports whether r is a WebSocket over HTTP/2 or HTTP/3,
// RFC 8441 and RFC 9220.
func extendedWebSocket(r *http.Request) bool {
	if r.Method != http.MethodConnect {
		return false
	}
	return r.ProtoMajor == 2 && r.Header.Get(":protocol") == "websocket" || r.ProtoMajor == 3 && r.Proto == "websocket"
}

func hasToken(values []string, token string) bool {
	for _, v := range values {
		for t := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(t), token) {
				return true
			}
		}
	}
	return false
}
