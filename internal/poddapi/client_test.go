package poddapi_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
)

func TestToken(t *testing.T) {
	key := []byte("0123456789abcdef0123456789abcdef")
	// Computed once with: printf 'cubepod podd v1\nfull\nsb\n1' | openssl dgst -sha256 -hmac "$key"
	const want = "3ea5efa7bd1c3653d520042a5099600b2181adf366893e11ce92dee458023f3d"
	if got := poddapi.Token(key, poddapi.Full, "sb", 1); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	seen := map[string]string{}
	for name, tok := range map[string]string{
		"full":        poddapi.Token(key, poddapi.Full, "sb", 1),
		"tunnel":      poddapi.Token(key, poddapi.Tunnel, "sb", 1),
		"incarnation": poddapi.Token(key, poddapi.Full, "sb", 2),
		"sandbox":     poddapi.Token(key, poddapi.Full, "sc", 1),
	} {
		if other, ok := seen[tok]; ok {
			t.Errorf("%s and %s share a token", name, other)
		}
		seen[tok] = name
	}
}

func TestClientErrors(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer tok" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("got headers %v", r.Header)
		}
		apierror.Write(w, apierror.New(apierror.Unavailable, "stopping", "podd is about to stop"))
	}))
	rt := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", srv.Listener.Addr().String())
	}}
	defer rt.CloseIdleConnections()
	c := poddapi.NewClient(rt, "tok")
	_, err := c.Run(t.Context(), poddapi.RunRequest{Command: "true"})
	if e, ok := errors.AsType[*apierror.Error](err); !ok || e.Code != "stopping" || e.Status() != 503 {
		t.Errorf("got %v", err)
	}
	srv.Close()
	_, err = c.Run(t.Context(), poddapi.RunRequest{Command: "true"})
	if e, ok := errors.AsType[*apierror.Error](err); !ok || e.Code != "podd_unreachable" {
		t.Errorf("got %v", err)
	}
}

// guest answers one handshake with reply and then sends back what it reads.
func guest(t *testing.T, reply string) net.Conn {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() { here.Close(); there.Close() })
	go func() {
		defer there.Close()
		br := bufio.NewReader(there)
		if _, err := http.ReadRequest(br); err != nil {
			return
		}
		io.WriteString(there, reply)
		io.Copy(there, br)
	}()
	return here
}

func TestOpenTunnel(t *testing.T) {
	// The port's first bytes arrive in the same packet as podd's answer.
	conn, err := poddapi.OpenTunnel(t.Context(), guest(t, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nRFB 003.008\n"), "tok", 5900)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 12)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "RFB 003.008\n" {
		t.Errorf("got %q, %v", got, err)
	}
	go conn.Write([]byte("echo"))
	if _, err := io.ReadFull(conn, got[:4]); err != nil || string(got[:4]) != "echo" {
		t.Errorf("got %q, %v", got[:4], err)
	}
}

func TestOpenTunnelRefused(t *testing.T) {
	body := `{"code":502,"error":"port_closed","message":"nobody listens on 81"}`
	_, err := poddapi.OpenTunnel(t.Context(), guest(t, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 68\r\n\r\n"+body+strings.Repeat(" ", 68-len(body))), "tok", 81)
	if e, ok := errors.AsType[*apierror.Error](err); !ok || e.Code != "port_closed" {
		t.Errorf("got %v", err)
	}
}

func TestOpenTunnelEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := poddapi.OpenTunnel(ctx, guest(t, ""), "tok", 81)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's error", err)
	}
}
