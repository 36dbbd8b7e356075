package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// part is a row of the table: the processes of these programs.
type part struct {
	name     string
	programs []string
}

var parts = []part{
	{"X", []string{"Xvfb", "Xtigervnc"}},
	{"window manager", []string{"openbox"}},
	{"VNC", []string{"x11vnc", "X0tigervnc"}},
	{"Chromium", []string{"chromium", "chrome", "chrome_crashpad"}},
	{"ours", []string{"cubepod-desktop", "ttyd"}},
	{"podd", []string{"podd", "podd-init"}},
}

// eachProcess calls f for the processes of each part.
func eachProcess(f func(part string, dir string)) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		comm, err := os.ReadFile(dir + "/comm")
		if err != nil {
			continue
		}
		for _, p := range parts {
			if slices.Contains(p.programs, strings.TrimSpace(string(comm))) {
				f(p.name, dir)
			}
		}
	}
}

// cpu is time in use, by part.
type cpu struct {
	span time.Duration
	used map[string]time.Duration
}

// total is the share of one core.
func (c cpu) total() float64 {
	var sum time.Duration
	for _, d := range c.used {
		sum += d
	}
	return 100 * sum.Seconds() / c.span.Seconds()
}

func (c cpu) String() string {
	s := fmt.Sprintf("%.1f %% of a core", c.total())
	for _, p := range parts {
		if d := c.used[p.name]; d > 0 {
			s += fmt.Sprintf(", %s %.1f", p.name, 100*d.Seconds()/c.span.Seconds())
		}
	}
	return s
}

// measureCPU gives what the guest's processes use while f runs.
func measureCPU(f func()) cpu {
	before, began := ticks(), time.Now()
	f()
	c := cpu{span: time.Since(began), used: make(map[string]time.Duration)}
	for part, n := range ticks() {
		const tick = 10 * time.Millisecond
		c.used[part] = time.Duration(n-before[part]) * tick
	}
	return c
}

func ticks() map[string]int64 {
	sum := make(map[string]int64)
	eachProcess(func(part, dir string) {
		b, err := os.ReadFile(dir + "/stat")
		if err != nil {
			return
		}
		line := string(b)
		f := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
		if len(f) < 15 {
			return
		}
		user, _ := strconv.ParseInt(f[11], 10, 64)
		system, _ := strconv.ParseInt(f[12], 10, 64)
		sum[part] += user + system
	})
	return sum
}

// memory is in KiB.
type memory struct{ rss, pss int }

func memories() map[string]memory {
	sum := make(map[string]memory)
	eachProcess(func(part, dir string) {
		b, err := os.ReadFile(dir + "/smaps_rollup")
		if err != nil {
			return
		}
		m := sum[part]
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) < 2 {
				continue
			}
			n, _ := strconv.Atoi(f[1])
			switch f[0] {
			case "Rss:":
				m.rss += n
			case "Pss:":
				m.pss += n
			}
		}
		sum[part] = m
	})
	return sum
}
