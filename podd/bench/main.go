// Command bench measures podd side by side with what it competes with, on this
// machine and in one run, and prints a table. What it compares takes turns, so
// that a machine's mood meets both; figures are medians.
//
//	go run ./podd/bench [--podd FILE] [--dir DIR] [--quick]
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
)

// config says what is measured, and how much of it.
type config struct {
	podd     string
	dir      string // for large files
	commands int    // of each kind
	rounds   int    // of bulk transfers
	bulk     int64  // bytes
	long     int    // commands before memory is looked at
}

func main() {
	log.SetFlags(0)
	c := config{commands: 1000, rounds: 5, bulk: 1 << 30, long: 10_000}
	quick := flag.Bool("quick", false, "measure less of everything")
	flag.StringVar(&c.podd, "podd", "", "podd's binary; without it one is built")
	flag.StringVar(&c.dir, "dir", "", "directory for files of 1 GiB; without it a temporary one")
	flag.Parse()
	if *quick {
		c.commands, c.rounds, c.bulk, c.long = 200, 3, 256<<20, 1000
	}
	if err := c.run(); err != nil {
		log.Fatal(err)
	}
}

func (c config) run() error {
	tmp, err := os.MkdirTemp(c.dir, "podd-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if c.dir = tmp; c.podd == "" {
		c.podd = filepath.Join(tmp, "podd")
		build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", c.podd, "./podd")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build podd: %w: %s", err, out)
		}
	}
	p, err := startPodd(c.podd, tmp)
	if err != nil {
		return err
	}
	defer p.stop()
	fmt.Printf("%s, %d CPUs, %s, load %s\n\n", runtime.GOARCH, runtime.NumCPU(), kernel(), load())
	var t table
	for _, measure := range []func(config, *podd, *table) error{
		size, freshMemory, foreground, parallel, background, drain, putAndGet, tunnel, laterMemory,
	} {
		if err := measure(c, p, &t); err != nil {
			return err
		}
	}
	t.print()
	fmt.Printf("\nload %s\n", load())
	return nil
}

// table collects rows.
type table struct{ rows [][]string }

// row adds a measurement, what it is compared with, their relation, and what
// that should be. met is empty where there is nothing to meet.
func (t *table) row(what, podd, other, relation, target string, met bool) {
	verdict := "met"
	if !met {
		verdict = "MISSED"
	}
	t.rows = append(t.rows, []string{what, podd, other, relation, target, verdict})
	fmt.Fprintf(os.Stderr, "%s: %s, %s: %s\n", what, podd, other, verdict)
}

// note adds a row without figures.
func (t *table) note(what, why string) {
	t.rows = append(t.rows, []string{what, "-", why, "-", "-", "-"})
}

func (t *table) print() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "what\tpodd\tbeside it\tratio\ttarget\t")
	for _, r := range t.rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r[0], r[1], r[2], r[3], r[4], r[5])
	}
	w.Flush()
}

// samples are durations of one kind.
type samples []time.Duration

func (s samples) quantile(q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[int(q*float64(len(sorted)-1))]
}

func (s samples) median() time.Duration { return s.quantile(0.5) }

// timed appends how long f takes.
func (s *samples) timed(f func() error) error {
	began := time.Now()
	err := f()
	*s = append(*s, time.Since(began))
	return err
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000) }

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

// rate is n bytes in d.
func rate(n int64, d time.Duration) string {
	return fmt.Sprintf("%.2f GiB/s", float64(n)/(1<<30)/d.Seconds())
}

func kernel() string {
	data, _ := os.ReadFile("/proc/sys/kernel/osrelease") // for people to read only
	return "Linux " + string(data[:max(0, len(data)-1)])
}

func load() string {
	data, _ := os.ReadFile("/proc/loadavg") // for people to read only
	var one, five, fifteen string
	fmt.Sscan(string(data), &one, &five, &fifteen)
	return one + " " + five + " " + fifteen
}
