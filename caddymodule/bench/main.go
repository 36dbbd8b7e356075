// Command bench measures panels against plain proxying by the same Caddy, and
// beside HAProxy where it is installed:
//
//	make bench-edge
//	go run ./caddymodule/bench [-rounds 7] [-seconds 3] [-idle 1000]
//
// What is compared runs in turns, round by round, so that the rest of the
// machine disturbs all alike; the table shows medians and their ratios. It needs
// redis-server, nginx and wrk.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

const largeBody = 1 << 30

var (
	rounds  = flag.Int("rounds", 7, "rounds of each comparison")
	seconds = flag.Int("seconds", 3, "seconds of load in a round")
	idle    = flag.Int("idle", 1000, "idle WebSockets for the memory comparison")
	only    = flag.String("only", "rate,latency,echo,download,memory", "what to measure")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	r, err := newRig()
	if err != nil {
		return err
	}
	defer r.close()
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Printf("load before: %s", load)
	for _, part := range strings.Split(*only, ",") {
		f := map[string]func(*rig) error{"rate": rates, "latency": latencies, "echo": echoes, "download": downloads, "memory": memory}[part]
		if f == nil {
			return fmt.Errorf("nothing is called %q", part)
		}
		if err := f(r); err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
	}
	load, _ = os.ReadFile("/proc/loadavg")
	fmt.Printf("load after:  %s", load)
	return nil
}

// way is one of the things compared.
type way struct {
	name string
	url  string
}

func (r *rig) ways() []way {
	ways := []way{{"plain", r.plainURL}, {"panel", r.panelURL}, {"tunnel", r.tunnelURL}}
	if r.haproxyURL != "" {
		ways = append(ways, way{"haproxy", r.haproxyURL})
	}
	return ways
}

// compare measures each way in turns and prints the medians, and the median of
// the ratios to the first way in the same round.
func compare(what, unit string, ways []way, measure func(way) (float64, error)) error {
	values, ratios := map[string][]float64{}, map[string][]float64{}
	for range *rounds {
		var first float64
		for i, w := range ways {
			v, err := measure(w)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			if i == 0 {
				first = v
			}
			values[w.name] = append(values[w.name], v)
			ratios[w.name] = append(ratios[w.name], v/first)
		}
	}
	for _, w := range ways {
		q := ratios[w.name]
		slices.Sort(q)
		fmt.Printf("%-22s %-8s %10.1f %-6s ×%.2f (%.2f–%.2f)\n", what, w.name, median(values[w.name]), unit, median(q), q[0], q[len(q)-1])
	}
	return nil
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

var wrkRate = regexp.MustCompile(`Requests/sec:\s+([\d.]+)`)

func rates(r *rig) error {
	for _, c := range []int{1, 16, 64} {
		if err := compare(fmt.Sprintf("1 KiB, c=%d", c), "req/s", r.ways(), func(w way) (float64, error) {
			out, err := exec.Command("wrk", "-t1", "-c"+strconv.Itoa(c), "-d"+strconv.Itoa(*seconds)+"s", w.url).CombinedOutput()
			m := wrkRate.FindSubmatch(out)
			if err != nil || m == nil || strings.Contains(string(out), "Non-2xx") {
				return 0, fmt.Errorf("%w: %s", err, out)
			}
			return strconv.ParseFloat(string(m[1]), 64)
		}); err != nil {
			return err
		}
	}
	return nil
}

// latencies sends at half of what plain proxying can do over one connection,
// whatever the answers' pace, and looks at the middle one.
func latencies(r *rig) error {
	n := 0
	end := time.Now().Add(time.Second)
	for client := new(http.Client); time.Now().Before(end); n++ {
		if err := fetch(client, r.plainURL); err != nil {
			return err
		}
	}
	pace := 2 * time.Second / time.Duration(max(n, 1))
	return compare("p50 at half load", "µs", r.ways(), func(w way) (float64, error) {
		client := &http.Client{Transport: new(http.Transport)}
		defer client.CloseIdleConnections()
		var all []float64
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for end := time.Now().Add(time.Duration(*seconds) * time.Second); time.Now().Before(end); {
			<-tick.C
			start := time.Now()
			if err := fetch(client, w.url); err != nil {
				return 0, err
			}
			all = append(all, float64(time.Since(start).Microseconds()))
		}
		return median(all), nil
	})
}

func fetch(client *http.Client, url string) error {
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func echoWays() []way {
	return []way{{"plain", echo["plain"]}, {"panel", echo["panel"]}, {"tunnel", echo["tunnel"]}, {"direct", echo["direct"]}}
}

func open(url string) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(url, "http")+"ws", nil)
	return c, err
}

func turn(c *websocket.Conn, message []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := c.Write(ctx, websocket.MessageBinary, message); err != nil {
		return err
	}
	_, _, err := c.Read(ctx)
	return err
}

func echoes(*rig) error {
	message := make([]byte, 64)
	return compare("WebSocket echo, p50", "µs", echoWays(), func(w way) (float64, error) {
		c, err := open(w.url)
		if err != nil {
			return 0, err
		}
		defer c.CloseNow()
		var all []float64
		for end := time.Now().Add(time.Duration(*seconds) * time.Second / 2); time.Now().Before(end); {
			start := time.Now()
			if err := turn(c, message); err != nil {
				return 0, err
			}
			all = append(all, float64(time.Since(start).Nanoseconds())/1000)
		}
		return median(all), nil
	})
}

func downloads(*rig) error {
	return compare("download of 1 GiB", "MiB/s", echoWays(), func(w way) (float64, error) {
		start := time.Now()
		resp, err := http.Get(w.url + "large")
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		n, err := io.Copy(io.Discard, resp.Body)
		if err != nil || n != largeBody {
			return 0, fmt.Errorf("%d bytes: %w", n, err)
		}
		return float64(n>>20) / time.Since(start).Seconds(), nil
	})
}

// memory opens idle WebSockets and looks at what each costs the proxy; then it
// reloads the panel's configuration, and counts those that are left.
func memory(r *rig) error {
	var conns []*websocket.Conn
	closeAll := func() {
		for _, c := range conns {
			c.CloseNow()
		}
		conns = nil
	}
	defer closeAll()
	for _, name := range []string{"plain", "panel"} {
		closeAll() // of both at once there might be more than this process may have
		before, err := r.pss(name)
		if err != nil {
			return err
		}
		for range *idle {
			c, err := open(echo[name])
			if err != nil {
				return err
			}
			conns = append(conns, c)
			if err := turn(c, []byte("x")); err != nil {
				return err
			}
		}
		after, err := r.pss(name)
		if err != nil {
			return err
		}
		fmt.Printf("%-22s %-8s %10.1f KiB\n", fmt.Sprintf("memory, %d idle", *idle), name, float64(after-before)/float64(*idle))
	}
	if err := r.reload(); err != nil {
		return err
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	dropped := 0
	for part := range slices.Chunk(conns, max(1, *idle/16)) {
		wg.Go(func() {
			for _, c := range part {
				if turn(c, []byte("x")) != nil {
					mu.Lock()
					dropped++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	fmt.Printf("%-22s %-8s %10d of %d\n", "dropped by a reload", "panel", dropped, *idle)
	return nil
}

// pss gives the memory of a proxy in KiB after a collection.
func (r *rig) pss(name string) (int, error) {
	for range 2 {
		resp, err := http.Get("http://" + r.admins[name] + "/debug/pprof/heap?gc=1")
		if err != nil {
			return 0, err
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", r.pids[name]))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "Pss:" {
			return strconv.Atoi(f[1])
		}
	}
	return 0, fmt.Errorf("no Pss in smaps_rollup")
}
