package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cubeplexai/cubepod/internal/poddapi"
)

const token = "bench"

// podd is the one that is measured.
type podd struct {
	*poddapi.Client
	cmd  *exec.Cmd
	addr string
	http *http.Client
}

// startPodd runs binary with its files in dir.
func startPodd(binary, dir string) (*podd, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	l.Close() // podd takes it
	tokens := filepath.Join(dir, "token")
	if err := os.WriteFile(tokens, []byte(token+"\n"), 0o600); err != nil {
		return nil, err
	}
	p := &podd{addr: addr, cmd: exec.Command(binary, "--addr", addr, "--token-file", tokens, "--workdir", "/", "--state-dir", filepath.Join(dir, "state"))}
	p.cmd.Stderr = os.Stderr
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	rt := &http.Transport{MaxIdleConnsPerHost: 16, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}}
	p.http, p.Client = &http.Client{Transport: rt}, poddapi.NewClient(rt, token)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := p.Health(ctx); err == nil {
			return p, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			p.stop()
			return nil, fmt.Errorf("podd does not come up: %w", ctx.Err())
		}
	}
}

func (p *podd) stop() {
	p.http.CloseIdleConnections()
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.cmd.Wait() // its end is of no interest
}

// memory is what is resident of podd, in bytes.
func (p *podd) memory() (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		var kb int64
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kb); n == 1 {
			return kb << 10, nil
		}
	}
	return 0, fmt.Errorf("no VmRSS of podd")
}

// file makes a request about the file at path.
func (p *podd) file(method, path string, body *os.File) (*http.Request, error) {
	req, err := http.NewRequest(method, "http://podd/v1/files?path="+url.QueryEscape(path), nil)
	if err != nil {
		return nil, err
	}
	if body != nil {
		fi, err := body.Stat()
		if err != nil {
			return nil, err
		}
		req.Body, req.ContentLength = body, fi.Size()
	}
	req.Header.Set("Authorization", "Bearer "+token)
	return req, nil
}
