// Command bench measures the session API against its bounds, with real
// processes on this machine, and prints a table. What it cannot measure here it
// says.
//
//	bench [--bin DIR] [--image IMAGE] [--desktop IMAGE] [-n N]
//
// It wants redis-server and a Docker engine that has the images.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
)

// config is what to measure with.
type config struct {
	bin     string
	image   string
	desktop string
	n       int
}

func main() {
	var cfg config
	flag.StringVar(&cfg.bin, "bin", "bin", "`directory` of cubepod-sessionapi and guest/")
	flag.StringVar(&cfg.image, "image", "cubepod/base:dev", "image of a sandbox")
	flag.StringVar(&cfg.desktop, "desktop", "cubepod/desktop:dev", "image of a sandbox with a desktop")
	flag.IntVar(&cfg.n, "n", 15, "how many sandboxes are created for each figure")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, cfg); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

// row is one line of the table.
type row struct {
	what, got, bound string
	ok               bool
}

func run(ctx context.Context, cfg config) error {
	fmt.Printf("load average at the start: %s\n", loadAverage())
	var rows []row
	for _, m := range []func(context.Context, config) ([]row, error){calls, creates, pooled, replicas, memory} {
		r, err := m(ctx, cfg)
		if err != nil {
			return err
		}
		rows = append(rows, r...)
	}
	fmt.Printf("load average at the end:   %s\n\n", loadAverage())
	fmt.Printf("%-58s %22s  %-12s\n", "", "measured", "bound")
	for _, r := range rows {
		mark := ""
		if !r.ok {
			mark = "  MISSED"
		}
		fmt.Printf("%-58s %22s  %-12s%s\n", r.what, r.got, r.bound, mark)
	}
	return nil
}

func loadAverage() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(data))[:3], " ")
}
