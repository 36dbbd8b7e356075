package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/cubeplexai/cubepod/internal/poddapi"
)

// drain compares podd's taking of a long output with a shell's redirection.
func drain(c config, p *podd, t *table) error {
	file := filepath.Join(c.dir, "drained")
	write := fmt.Sprintf("head -c %d /dev/zero", c.bulk)
	var ours, bare samples
	for range c.rounds {
		if err := ours.timed(func() error {
			r, err := p.Run(context.Background(), poddapi.RunRequest{Command: write, OutputLimit: 1})
			if err == nil && (r.ExitCode == nil || *r.ExitCode != 0) {
				err = fmt.Errorf("%s: %+v", write, r.Status)
			}
			return err
		}); err != nil {
			return err
		}
		if err := bare.timed(exec.Command(shell, "-c", write+" | cat > "+file).Run); err != nil {
			return err
		}
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	compare(t, "1 GiB of output", c.bulk, ours, bare, "| cat >file", 0.5)
	return nil
}

// putAndGet compares transfers of a file with a copy of it.
func putAndGet(c config, p *podd, t *table) error {
	from, to := filepath.Join(c.dir, "from"), filepath.Join(c.dir, "to")
	if out, err := exec.Command(shell, "-c", fmt.Sprintf("head -c %d /dev/urandom > %s", c.bulk, from)).CombinedOutput(); err != nil {
		return fmt.Errorf("make a file: %w: %s", err, out)
	}
	var put, get, cp samples
	for range c.rounds {
		if err := put.timed(func() error { return p.put(from, to) }); err != nil {
			return err
		}
		if err := get.timed(func() error { return p.fetch(to, c.bulk) }); err != nil {
			return err
		}
		if err := os.Remove(to); err != nil {
			return err
		}
		if err := cp.timed(exec.Command("cp", "--reflink=never", from, to).Run); err != nil {
			return err
		}
		if err := os.Remove(to); err != nil {
			return err
		}
	}
	compare(t, "PUT of 1 GiB", c.bulk, put, cp, "cp", 0.7)
	compare(t, "GET of 1 GiB", c.bulk, get, cp, "cp", 0.7)
	return os.Remove(from)
}

func (p *podd) put(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	req, err := p.file(http.MethodPut, to, f)
	if err != nil {
		return err
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return err
	}
	return drainBody(resp)
}

func (p *podd) fetch(path string, want int64) error {
	req, err := p.file(http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, make([]byte, 256<<10))
	if err == nil && n != want {
		err = fmt.Errorf("GET: got %d bytes", n)
	}
	return err
}

func (p *podd) get(path string) (*http.Request, error) {
	req, err := http.NewRequest(http.MethodGet, "http://podd"+path, nil)
	if err == nil {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return req, err
}

// drainBody reads an answer that must be a success.
func drainBody(resp *http.Response) error {
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, data)
	}
	return err
}

// compare adds a row of two rates, of which podd's is to be at least k times
// the other.
func compare(t *table, what string, n int64, ours, other samples, name string, k float64) {
	a, b := ours.median(), other.median()
	t.row(what, rate(n, a), rate(n, b)+" "+name, fmt.Sprintf("%.2f", ratio(b, a)), fmt.Sprintf("≥ %.1f", k), ratio(b, a) >= k)
}
