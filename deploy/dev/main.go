// Command dev runs the whole of CubePod on one machine for development: the
// session API with its embedded Redis and the local or the docker runtime, the
// edge, and a first sandbox with its desktop. It is what `make run` starts.
//
// It ends with SIGINT, SIGTERM, SIGHUP or SIGQUIT and then leaves nothing
// running: sandboxes are paused, their files stay in the data directory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
)

// The programs end with the thread that started them, see startChild. This one
// lives as long as the process.
func init() { runtime.LockOSThread() }

// Config is what the flags say.
type Config struct {
	Runtime     string
	Data        string
	API         string
	Metrics     string
	ConsolePort int
	PanelPort   int
	ConsoleTLS  int
	PanelTLS    int
	Caddyfile   string
	ImagesDir   string
	BinDir      string
}

func defaultConfig() Config {
	return Config{
		Runtime:     "local",
		Data:        ".cubepod",
		API:         "127.0.0.1:8090",
		Metrics:     "127.0.0.1:8091",
		ConsolePort: 8100,
		PanelPort:   8101,
		ConsoleTLS:  8443,
		PanelTLS:    8444,
		Caddyfile:   "Caddyfile",
		ImagesDir:   "images",
	}
}

// Validate checks what flag parsing cannot.
func (c Config) Validate() error {
	if c.Runtime != "local" && c.Runtime != "docker" {
		return fmt.Errorf("--runtime: %q is neither local nor docker", c.Runtime)
	}
	if c.Data == "" {
		return errors.New("--data is empty")
	}
	taken := map[int]string{}
	for _, p := range c.ports() {
		if p.port < 1 || p.port > 65535 {
			return fmt.Errorf("--%s: %d is no port", p.flag, p.port)
		}
		if other, ok := taken[p.port]; ok {
			return fmt.Errorf("--%s and --%s are both %d", other, p.flag, p.port)
		}
		taken[p.port] = p.flag
	}
	return nil
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func parse(args []string) (Config, error) {
	c := defaultConfig()
	fs := flag.NewFlagSet("dev", flag.ContinueOnError)
	fs.StringVar(&c.Runtime, "runtime", c.Runtime, "what sandboxes are: processes of this machine (local), or containers (docker)")
	fs.StringVar(&c.Data, "data", c.Data, "state: keys, the embedded Redis, sandboxes, logs")
	fs.StringVar(&c.API, "api", c.API, "where the session API listens")
	fs.StringVar(&c.Metrics, "metrics", c.Metrics, "where the session API serves its metrics")
	fs.IntVar(&c.ConsolePort, "console-port", c.ConsolePort, "console and API over HTTP, on localhost")
	fs.IntVar(&c.PanelPort, "panel-port", c.PanelPort, "panels over HTTP, on localhost")
	fs.IntVar(&c.ConsoleTLS, "console-tls-port", c.ConsoleTLS, "console and API over HTTPS, on localhost")
	fs.IntVar(&c.PanelTLS, "panel-tls-port", c.PanelTLS, "panels over HTTPS, on localhost")
	fs.StringVar(&c.Caddyfile, "caddyfile", c.Caddyfile, "the edge's configuration")
	fs.StringVar(&c.ImagesDir, "images", c.ImagesDir, "where the images' build.sh is, for the docker runtime")
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	if fs.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if err := c.Validate(); err != nil {
		return c, err
	}
	exe, err := os.Executable()
	if err != nil {
		return c, err
	}
	c.BinDir = filepath.Dir(exe)
	for _, p := range []*string{&c.Data, &c.Caddyfile, &c.ImagesDir} {
		if *p, err = filepath.Abs(*p); err != nil {
			return c, err
		}
	}
	return c, nil
}

func run(args []string, out io.Writer) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	// A terminal that is closed, and Ctrl-\, end it like the others.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer stop()
	unlock, err := lockData(c.Data)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := start(ctx, c, out)
	if err != nil {
		if ctx.Err() != nil {
			fmt.Fprintln(out, "stopped before it was up")
			return nil
		}
		return err
	}
	select {
	case <-ctx.Done():
		fmt.Fprintln(out, "\nstopping: sandboxes are paused, their files stay")
		return s.Close()
	case err := <-s.died:
		return errors.Join(err, s.Close())
	}
}
