// Command bench measures the desktop image side by side with the same Chromium
// alone, each run in a fresh container with a fresh profile and a warm page
// cache, and prints a table.
//
//	go run ./desktopctl/bench [-image NAME] [-runs N]
//	go run ./desktopctl/bench -compare       the VNC servers, one by one
//
// Figures are of the machine's mood as well: the table ends with its load.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) == 3 && os.Args[1] == "inside" {
		if err := inside(ctx, os.Args[2]); err != nil {
			fail(err)
		}
		return
	}
	image := flag.String("image", "cubepod/desktop:dev", "the image")
	runs := flag.Int("runs", 20, "cold starts")
	podd := flag.String("podd", "bin/guest/podd", "the podd to measure with")
	servers := flag.Bool("compare", false, "compare the VNC servers")
	flag.Parse()
	h, err := newHost(*image, *podd)
	if err != nil {
		fail(err)
	}
	if *servers {
		err = h.compare(ctx)
	} else {
		err = h.table(ctx, *runs)
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}

// host runs this program in containers.
type host struct{ image, self, podd string }

func newHost(image, podd string) (*host, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	podd, err = filepath.Abs(podd)
	if err != nil {
		return nil, err
	}
	return &host{image, self, podd}, nil
}

// run does one kind of measurement in a fresh container.
func (h *host) run(ctx context.Context, kind string, options ...string) (sample, error) {
	args := append([]string{
		"run", "--rm", "--init", "--network", "none", "--shm-size", "512m", "--entrypoint", "/bench",
		"-v", h.self + ":/bench:ro", "-v", h.podd + ":/opt/cubepod/bin/podd:ro",
		"-u", "1000:1000", "-e", "HOME=/home/cubeplex", "--tmpfs", "/run/cubepod:uid=1000,gid=1000,mode=0755",
	}, options...)
	cmd := exec.CommandContext(ctx, "docker", append(args, h.image, "inside", kind)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	var s sample
	return s, json.Unmarshal(out, &s)
}

// sample is what one container found out: figures in their unit, by name.
type sample map[string]float64

// table prints what the desktop costs.
func (h *host) table(ctx context.Context, runs int) error {
	all := make(map[string][]float64)
	collect := func(kind string, options ...string) error {
		s, err := h.run(ctx, kind, options...)
		for name, v := range s {
			all[name] = append(all[name], v)
		}
		return err
	}
	if err := collect("bare"); err != nil { // warms the page cache
		return err
	}
	clear(all)
	var ratios, frameRatios []float64
	for range runs {
		if err := collect("bare"); err != nil {
			return err
		}
		if err := collect("stack"); err != nil {
			return err
		}
		if err := collect("frame"); err != nil {
			return err
		}
		// Neighbours in time share the machine's mood.
		ratios = append(ratios, last(all["whole stack ready"])/last(all["Chromium alone"]))
		frameRatios = append(frameRatios, last(all["first picture in noVNC"])/last(all["Chromium alone"]))
	}
	if err := collect("rest"); err != nil {
		return err
	}
	if err := collect("lazy", "-u", "0:0"); err != nil {
		return err
	}
	fmt.Println("| what | median | least | most | unit |\n|---|---|---|---|---|")
	row := func(name, unit string) {
		v := slices.Sorted(slices.Values(all[name]))
		if len(v) > 0 {
			fmt.Printf("| %s | %.4g | %.4g | %.4g | %s |\n", name, v[len(v)/2], v[0], v[len(v)-1], unit)
		}
	}
	all["stack ÷ Chromium alone"], all["picture ÷ Chromium alone"] = ratios, frameRatios
	for _, name := range []string{"Chromium alone", "whole stack ready", "first picture in noVNC", "second start", "status", "stop"} {
		row(name, "ms")
	}
	row("stack ÷ Chromium alone", "×")
	row("picture ÷ Chromium alone", "×")
	for _, name := range []string{"CPU at rest", "CPU at rest, one watches"} {
		row(name, "% of a core")
	}
	for _, p := range append(parts, part{name: "all"}, part{name: "idle guest"}) {
		row(p.name+", PSS", "MiB")
		row(p.name+", RSS", "MiB")
	}
	load, err := os.ReadFile("/proc/loadavg")
	fmt.Printf("\n%d runs, load at the end %s\n", runs, strings.TrimSpace(string(load)))
	return err
}

func last(v []float64) float64 { return v[len(v)-1] }

// compare prints the figures of each VNC server.
func (h *host) compare(ctx context.Context) error {
	for _, server := range []string{"x11vnc", "x0vncserver"} {
		fmt.Println(server)
		cmd := exec.CommandContext(ctx, "docker", "run", "--rm", "--init", "--network", "none", "--entrypoint", "/bench",
			"-v", h.self+":/bench:ro", "-u", "1000:1000", "-e", "CUBEPOD_VNC="+server,
			"--tmpfs", "/run/cubepod:uid=1000,gid=1000,mode=0755", h.image, "inside", "compare")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return err
		}
	}
	return nil
}
