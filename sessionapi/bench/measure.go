package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/cubeplexai/cubepod/internal/session"
)

// times runs f n times and gives how long each took, sorted.
func times(n int, f func() error) ([]time.Duration, error) {
	out := make([]time.Duration, n)
	for i := range out {
		began := time.Now()
		if err := f(); err != nil {
			return nil, err
		}
		out[i] = time.Since(began)
	}
	slices.Sort(out)
	return out, nil
}

func median(d []time.Duration) time.Duration { return d[len(d)/2] }

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/1e6) }

// calls measures calls of a sandbox that runs.
func calls(ctx context.Context, cfg config) ([]row, error) {
	s, err := newStack(ctx, cfg, 0)
	if err != nil {
		return nil, err
	}
	defer s.close()
	api, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	box, err := api.create(ctx, "desktop")
	if err != nil {
		return nil, err
	}
	start := func() error {
		_, err := api.must(ctx, http.StatusOK, "POST", box+"/desktop/start", "")
		return err
	}
	cold, err := times(1, start)
	if err != nil {
		return nil, err
	}
	warm, err := times(200, start)
	if err != nil {
		return nil, err
	}

	// In turn, so that both see the same machine. The raw value is as long as
	// the record.
	id := box[len("/sandboxes/"):]
	doc, err := s.rdb.HGet(ctx, session.RecordKey(session.ID(id)), session.DocField).Result()
	if err != nil {
		return nil, err
	}
	if err := s.rdb.Set(ctx, "bench", doc, 0).Err(); err != nil {
		return nil, err
	}
	const n = 3000
	raw, status := make([]time.Duration, n), make([]time.Duration, n)
	for i := range n {
		one, err := times(1, func() error { return s.rdb.Get(ctx, "bench").Err() })
		if err != nil {
			return nil, err
		}
		two, err := times(1, func() error { _, err := api.must(ctx, http.StatusOK, "GET", box, ""); return err })
		if err != nil {
			return nil, err
		}
		raw[i], status[i] = one[0], two[0]
	}
	slices.Sort(raw)
	slices.Sort(status)
	over := median(status) - median(raw)
	return []row{
		{"desktop/start, first", ms(cold[0]), "", true},
		{"desktop/start of a running desktop, p50", ms(median(warm)), "15 ms", median(warm) <= 15*time.Millisecond},
		{"raw Redis GET, p50", ms(median(raw)), "", true},
		{"status of a sandbox, p50, over a raw Redis GET", ms(over), "0.3 ms", over <= 300*time.Microsecond},
	}, nil
}

// creates measures creates against docker run, in turn.
func creates(ctx context.Context, cfg config) ([]row, error) {
	s, err := newStack(ctx, cfg, 0)
	if err != nil {
		return nil, err
	}
	defer s.close()
	api, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	ours, dockers := make([]time.Duration, 0, cfg.n), make([]time.Duration, 0, cfg.n)
	for i := range cfg.n + 1 {
		run, err := dockerRun(ctx, cfg.image)
		if err != nil {
			return nil, err
		}
		var box string
		create, err := times(1, func() (err error) { box, err = api.create(ctx, "base"); return err })
		if err != nil {
			return nil, err
		}
		if _, err := api.must(ctx, http.StatusNoContent, "DELETE", box, ""); err != nil {
			return nil, err
		}
		if i > 0 { // the first fills caches
			dockers, ours = append(dockers, run), append(ours, create[0])
		}
	}
	slices.Sort(ours)
	slices.Sort(dockers)
	ratio := float64(median(ours)) / float64(median(dockers))
	return []row{
		{"docker run until its first output, p50", ms(median(dockers)), "", true},
		{"create, no pool, p50", ms(median(ours)), "", true},
		{"create / docker run", fmt.Sprintf("%.2f", ratio), "1.25", ratio <= 1.25},
	}, nil
}

func dockerRun(ctx context.Context, image string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, "docker", "run", "--rm", "--network", deployment, image, "echo", "up")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	took := time.Since(began)
	if werr := cmd.Wait(); err == nil {
		err = werr
	}
	if err != nil {
		return 0, fmt.Errorf("docker run: %w", err)
	}
	return took, nil
}

// pooled measures creates that find a standby.
func pooled(ctx context.Context, cfg config) ([]row, error) {
	const warm = 3
	s, err := newStack(ctx, cfg, warm)
	if err != nil {
		return nil, err
	}
	defer s.close()
	api, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	for range cfg.n {
		full := func() bool {
			n, err := s.rdb.SCard(ctx, session.StandbysKey("base")).Result()
			return err == nil && n == warm
		}
		if err := eventually(ctx, full); err != nil {
			return nil, fmt.Errorf("standbys: %w", err)
		}
		var box string
		one, err := times(1, func() (err error) { box, err = api.create(ctx, "base"); return err })
		if err != nil {
			return nil, err
		}
		took = append(took, one[0])
		if _, err := api.must(ctx, http.StatusNoContent, "DELETE", box, ""); err != nil {
			return nil, err
		}
	}
	slices.Sort(took)
	return []row{{"create from the pool, p50", ms(median(took)), "50 ms", median(took) <= 50*time.Millisecond}}, nil
}

// replicas measures what a second replica costs.
func replicas(ctx context.Context, cfg config) ([]row, error) {
	s, err := newStack(ctx, cfg, 0)
	if err != nil {
		return nil, err
	}
	defer s.close()
	for range 2 {
		if _, err := s.start(ctx, "GOMAXPROCS=1"); err != nil {
			return nil, err
		}
	}
	box, err := s.replicas[0].create(ctx, "base")
	if err != nil {
		return nil, err
	}
	// Each replica has the same to do, since a busier one spends less on each.
	const requests, rounds, clients = 8000, 7, 4 // of one replica
	perRequest := func(over []*replica) (time.Duration, error) {
		before, err := cpuOf(over)
		if err != nil {
			return 0, err
		}
		var all errgroup.Group
		for c := range clients * len(over) {
			all.Go(func() error {
				for range requests / clients {
					if _, err := over[c%len(over)].must(ctx, http.StatusOK, "GET", box, ""); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := all.Wait(); err != nil {
			return 0, err
		}
		after, err := cpuOf(over)
		return (after - before) / time.Duration(requests*len(over)), err
	}
	if _, err := perRequest(s.replicas); err != nil { // warms up
		return nil, err
	}
	var one []time.Duration
	var ratios []float64
	for range rounds {
		a, err := perRequest(s.replicas[:1])
		if err != nil {
			return nil, err
		}
		b, err := perRequest(s.replicas)
		if err != nil {
			return nil, err
		}
		one, ratios = append(one, a), append(ratios, float64(b)/float64(a))
	}
	slices.Sort(one)
	slices.Sort(ratios)
	ratio := ratios[rounds/2] // of neighbours, since the machine changes
	return []row{
		{"CPU of a request, one replica at GOMAXPROCS=1", ms(median(one)), "", true},
		{"the same over two replicas, of that", fmt.Sprintf("%.2f", ratio), "1.05", ratio <= 1.05},
	}, nil
}

func cpuOf(replicas []*replica) (time.Duration, error) {
	var sum time.Duration
	for _, r := range replicas {
		c, err := r.cpu()
		if err != nil {
			return 0, err
		}
		sum += c
	}
	return sum, nil
}

// memory measures what the API itself takes.
func memory(ctx context.Context, cfg config) ([]row, error) {
	s, err := newStack(ctx, cfg, 0)
	if err != nil {
		return nil, err
	}
	defer s.close()
	api, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	idle, err := api.rss()
	if err != nil {
		return nil, err
	}
	const records = 10000
	if err := fill(ctx, s.rdb, records); err != nil {
		return nil, err
	}
	for range 5 {
		if _, err := api.must(ctx, http.StatusOK, "GET", "/sandboxes?state=paused&limit=1000", ""); err != nil {
			return nil, err
		}
	}
	full, err := api.rss()
	if err != nil {
		return nil, err
	}
	return []row{
		{"memory of an idle API", fmt.Sprintf("%.1f MiB", idle), "40 MiB", idle <= 40},
		{fmt.Sprintf("memory with %d records, after long lists", records), fmt.Sprintf("%.1f MiB", full), "60 MiB", full <= 60},
	}, nil
}

// fill writes records of paused sandboxes.
func fill(ctx context.Context, rdb *redis.Client, n int) error {
	now := time.Now().UTC()
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range n {
			rec := &session.Record{
				ID: session.NewID(), Owner: "bench", Template: "base", Runtime: "docker", State: session.Paused, Gen: 1, Incarnation: 1,
				MasterKey: "k", TunnelKey: "k", Metadata: map[string]string{"number": fmt.Sprint(i), "user": "somebody"},
				CreatedAt: now.Add(time.Duration(i) * time.Millisecond), StartedAt: now, EndAt: now.Add(time.Hour), TimeoutSeconds: 3600,
			}
			doc, err := rec.Encode()
			if err != nil {
				return err
			}
			p.HSet(ctx, session.RecordKey(rec.ID), session.DocField, doc, "rev", 1, "fence", 1)
			p.ZAdd(ctx, session.SandboxesKey, redis.Z{Score: float64(rec.CreatedAt.UnixMilli()), Member: string(rec.ID)})
		}
		return nil
	})
	return err
}
