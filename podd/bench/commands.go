package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/cubeplexai/cubepod/internal/poddapi"
)

const (
	shell   = "/bin/bash"
	command = "echo hi"
	output  = "hi\n"
)

func size(c config, _ *podd, t *table) error {
	fi, err := os.Stat(c.podd)
	if err != nil {
		return err
	}
	mb := float64(fi.Size()) / 1e6
	t.row("binary, stripped", fmt.Sprintf("%.1f MB", mb), "", "", "≤ 12 MB", mb <= 12)
	return nil
}

func (p *podd) exec() error {
	r, err := p.Run(context.Background(), poddapi.RunRequest{Command: command})
	if err == nil && r.Output != output {
		err = fmt.Errorf("podd: got %q", r.Output)
	}
	return err
}

func bareExec() error {
	out, err := exec.Command(shell, "-c", command).Output()
	if err == nil && string(out) != output {
		err = fmt.Errorf("bare exec: got %q", out)
	}
	return err
}

// foreground compares one command after the other, over one connection.
func foreground(c config, p *podd, t *table) error {
	var ours, bare samples
	for i := range c.commands + 20 {
		if i == 20 { // warm
			ours, bare = nil, nil
		}
		if err := ours.timed(p.exec); err != nil {
			return err
		}
		if err := bare.timed(bareExec); err != nil {
			return err
		}
	}
	for _, q := range []struct {
		name  string
		at, k float64
	}{{"p50", 0.5, 1.4}, {"p99", 0.99, 3}} {
		a, b := ours.quantile(q.at), bare.quantile(q.at)
		t.row("echo hi in the foreground, "+q.name, ms(a), ms(b)+" bare exec", fmt.Sprintf("%.2f", ratio(a, b)), fmt.Sprintf("≤ %.1f", q.k), ratio(a, b) <= q.k)
	}
	return nil
}

// parallel compares the rates of eight clients.
func parallel(c config, p *podd, t *table) error {
	const clients = 8
	round := func(one func() error) func() error {
		return func() error {
			errs := make(chan error, clients)
			var all sync.WaitGroup
			for range clients {
				all.Go(func() {
					for range c.commands / clients {
						if err := one(); err != nil {
							errs <- err
							return
						}
					}
				})
			}
			all.Wait()
			select {
			case err := <-errs:
				return err
			default:
				return nil
			}
		}
	}
	var ours, bare samples
	for range c.rounds {
		if err := ours.timed(round(p.exec)); err != nil {
			return err
		}
		if err := bare.timed(round(bareExec)); err != nil {
			return err
		}
	}
	n := float64(c.commands / clients * clients)
	a, b := n/ours.median().Seconds(), n/bare.median().Seconds()
	t.row("echo hi, 8 clients", fmt.Sprintf("%.0f/s", a), fmt.Sprintf("%.0f/s bare exec", b), fmt.Sprintf("%.2f", a/b), "≥ 0.8", a/b >= 0.8)
	return nil
}

// background compares a submit with a fork that is not waited for.
func background(c config, p *podd, t *table) error {
	var ours, bare samples
	for range c.commands {
		var id string
		if err := ours.timed(func() error {
			r, err := p.Run(context.Background(), poddapi.RunRequest{Command: command, Background: true})
			id = r.ID
			return err
		}); err != nil {
			return err
		}
		if err := p.await(id); err != nil {
			return err
		}
		cmd := exec.Command(shell, "-c", command)
		if err := bare.timed(cmd.Start); err != nil {
			return err
		}
		if err := cmd.Wait(); err != nil {
			return err
		}
	}
	a, b := ours.median(), bare.median()
	t.row("background submit, p50", ms(a), ms(b)+" bare fork", "+"+ms(a-b), "≤ +0.50 ms", a-b <= 500*time.Microsecond)
	return nil
}

// await waits for a command's end.
func (p *podd) await(id string) error {
	req, err := p.get("/v1/commands/" + id + "/logs?cursor=3&wait_ms=10000")
	if err != nil {
		return err
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return err
	}
	return drainBody(resp)
}

func freshMemory(_ config, p *podd, t *table) error {
	n, err := p.memory()
	t.row("memory, freshly started", mib(n), "", "", "≤ 12 MiB", n <= 12<<20)
	return err
}

// laterMemory looks at podd after many commands, and after as many again.
func laterMemory(c config, p *podd, t *table) error {
	var at [2]int64
	for i := range at {
		for range c.long {
			if err := p.exec(); err != nil {
				return err
			}
		}
		var err error
		if at[i], err = p.memory(); err != nil {
			return err
		}
	}
	t.row(fmt.Sprintf("memory after all that and %d commands", c.long), mib(at[0]), "", "", "≤ 25 MiB", at[0] <= 25<<20)
	t.row(fmt.Sprintf("memory after %d more", c.long), mib(at[1]), mib(at[0])+" before", fmt.Sprintf("%.2f", float64(at[1])/float64(at[0])), "≤ 1.1", float64(at[1]) <= 1.1*float64(at[0]))
	return nil
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
