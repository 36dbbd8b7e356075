package poddapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
)

// Client calls one podd. It is safe for concurrent use. Errors that podd
// answered are *[apierror.Error]; a podd that cannot be reached is
// apierror.BadGateway with code "podd_unreachable".
type Client struct {
	http  *http.Client
	token string
}

// base is a host for URLs only: the transport decides where to dial.
const base = "http://podd"

// NewClient returns a Client that reaches podd through rt, which decides
// where to dial, and shows it token.
func NewClient(rt http.RoundTripper, token string) *Client {
	return &Client{http: &http.Client{Transport: rt}, token: token}
}

// Health asks whether podd is up. It is the one call without a token.
func (c *Client) Health(ctx context.Context) (Health, error) {
	var h Health
	return h, c.call(ctx, http.MethodGet, "/health", nil, &h)
}

// Run starts a command and, unless it is a background one, waits for its end.
func (c *Client) Run(ctx context.Context, r RunRequest) (RunResponse, error) {
	var out RunResponse
	return out, c.call(ctx, http.MethodPost, "/v1/commands/run", r, &out)
}

// PutEnv replaces the terminal's environment file.
func (c *Client) PutEnv(ctx context.Context, envs map[string]string) error {
	return c.call(ctx, http.MethodPut, "/v1/env", EnvRequest{Envs: envs}, nil)
}

// PrepareStop closes the desktop, refuses new commands and flushes files.
func (c *Client) PrepareStop(ctx context.Context) (Stopped, error) {
	var s Stopped
	return s, c.call(ctx, http.MethodPost, "/v1/lifecycle/prepare-stop", nil, &s)
}

// Resume undoes PrepareStop.
func (c *Client) Resume(ctx context.Context, now time.Time) error {
	return c.call(ctx, http.MethodPost, "/v1/lifecycle/resume", ResumeRequest{Now: &now}, nil)
}

func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return fmt.Errorf("encode %s: %w", path, err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, base+path, &body)
	if err != nil {
		return err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := c.http.Do(req)
	if err != nil {
		return Unreachable(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return apierror.Read(resp)
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return apierror.Wrap(err, apierror.BadGateway, "podd_unreachable", "podd's answer broke off")
	}
	return nil
}

// Unreachable is the error of a podd that did not answer. An ended context
// stays what it is, and so does an *[apierror.Error] of the transport's.
func Unreachable(err error) error {
	if apierror.KindOf(err) != apierror.Internal {
		return err
	}
	return apierror.Wrap(err, apierror.BadGateway, "podd_unreachable", "the sandbox's daemon does not answer")
}

// TunnelPath is the path of the tunnel to a guest port.
func TunnelPath(port int) string { return "/v1/ports/" + strconv.Itoa(port) + "/tunnel" }

// OpenTunnel asks the podd behind conn, a fresh connection, for a tunnel to a
// loopback port of the guest. The connection it returns carries the port's
// bytes. On error conn is closed; an answer of podd comes as *[apierror.Error],
// code "port_closed" when nobody listens there. ctx bounds the handshake only.
func OpenTunnel(ctx context.Context, conn net.Conn, token string, port int) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	tunnel, err := handshake(conn, token, port)
	if !stop() && err == nil { // ctx ended at the last moment and took the deadline with it
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, err
	}
	return tunnel, nil
}

func handshake(conn net.Conn, token string, port int) (net.Conn, error) {
	if _, err := conn.Write([]byte("GET " + TunnelPath(port) + " HTTP/1.1\r\nHost: podd\r\nAuthorization: Bearer " + token +
		"\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")); err != nil {
		return nil, Unreachable(err)
	}
	br := bufio.NewReaderSize(conn, 1024)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		return nil, Unreachable(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		return nil, apierror.Read(resp)
	}
	if br.Buffered() == 0 {
		return conn, nil
	}
	early, _ := br.Peek(br.Buffered())
	return &earlyConn{Conn: conn, early: early}, nil
}

// earlyConn is a connection whose first bytes came with the handshake.
type earlyConn struct {
	net.Conn
	early []byte
}

func (c *earlyConn) Read(p []byte) (int, error) {
	if len(c.early) > 0 {
		n := copy(p, c.early)
		c.early = c.early[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// CloseWrite passes a half-close on where the connection knows one.
func (c *earlyConn) CloseWrite() error {
	if hc, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return hc.CloseWrite()
	}
	return nil
}
