package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/cubeplexai/cubepod/internal/poddapi"
)

// fountain is a guest's server: it sends n bytes to whoever connects.
type fountain struct {
	l       net.Listener
	n       int64
	serving sync.WaitGroup
}

func newFountain(n int64) (*fountain, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &fountain{l: l, n: n}
	f.serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.serving.Go(func() {
				defer c.Close()
				buf := make([]byte, 256<<10)
				for left := f.n; left > 0; {
					k, err := c.Write(buf[:min(left, int64(len(buf)))])
					if err != nil {
						return
					}
					left -= int64(k)
				}
			})
		}
	})
	return f, nil
}

func (f *fountain) port() int { return f.l.Addr().(*net.TCPAddr).Port }

func (f *fountain) close() {
	f.l.Close()
	f.serving.Wait()
}

// tunnel compares podd's tunnel with HAProxy before the same server.
func tunnel(c config, p *podd, t *table) error {
	const what = "tunnel, one connection"
	binary, err := exec.LookPath("haproxy")
	if err != nil {
		t.note(what, "no haproxy on this machine")
		return nil
	}
	f, err := newFountain(2 * c.bulk)
	if err != nil {
		return err
	}
	defer f.close()
	proxy, err := newHAProxy(binary, c.dir, f.port())
	if err != nil {
		return err
	}
	if err := proxy.start(); err != nil {
		return err
	}
	defer proxy.stop()

	var ours, splicing, plain samples
	for range c.rounds {
		for _, way := range []struct {
			s    *samples
			dial func() (net.Conn, error)
		}{
			{&ours, func() (net.Conn, error) { return p.tunnel(f.port()) }},
			{&splicing, func() (net.Conn, error) { return net.Dial("tcp", proxy.splicing) }},
			{&plain, func() (net.Conn, error) { return net.Dial("tcp", proxy.plain) }},
		} {
			if err := way.s.timed(func() error { return drink(way.dial, f.n) }); err != nil {
				return err
			}
		}
	}
	compare(t, what, f.n, ours, splicing, "HAProxy, splicing", 1)
	compare(t, what, f.n, ours, plain, "HAProxy", 1)
	return nil
}

func (p *podd) tunnel(port int) (net.Conn, error) {
	c, err := net.Dial("tcp", p.addr)
	if err != nil {
		return nil, err
	}
	return poddapi.OpenTunnel(context.Background(), c, token, port)
}

// drink reads a connection to its end.
func drink(dial func() (net.Conn, error), want int64) error {
	c, err := dial()
	if err != nil {
		return err
	}
	defer c.Close()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, 256<<10))
	if err == nil && n != want {
		err = fmt.Errorf("got %d bytes of %d", n, want)
	}
	return err
}

// haproxy listens on two addresses.
type haproxy struct {
	cmd             *exec.Cmd
	splicing, plain string
}

// newHAProxy returns one, not yet started, before the server on port.
func newHAProxy(binary, dir string, port int) (*haproxy, error) {
	h := &haproxy{}
	for _, addr := range []*string{&h.splicing, &h.plain} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		*addr = l.Addr().String()
		defer l.Close() // HAProxy takes it
	}
	config := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(config, fmt.Appendf(nil, `defaults
  mode tcp
  timeout connect 5s
  timeout client 5m
  timeout server 5m
listen splicing
  bind %s
  option splice-auto
  server guest 127.0.0.1:%d
listen plain
  bind %s
  server guest 127.0.0.1:%[2]d
`, h.splicing, port, h.plain), 0o600); err != nil {
		return nil, err
	}
	h.cmd = exec.Command(binary, "-db", "-f", config)
	h.cmd.Stderr = os.Stderr
	return h, nil
}

func (h *haproxy) start() error {
	if err := h.cmd.Start(); err != nil {
		return err
	}
	bound := time.NewTimer(10 * time.Second)
	defer bound.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := net.Dial("tcp", h.plain)
		if err == nil {
			c.Close()
			return nil
		}
		select {
		case <-tick.C:
		case <-bound.C:
			h.stop()
			return fmt.Errorf("haproxy does not come up: %w", err)
		}
	}
}

func (h *haproxy) stop() {
	h.cmd.Process.Signal(syscall.SIGTERM)
	h.cmd.Wait() // its end is of no interest
}
