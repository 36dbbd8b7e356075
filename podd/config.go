package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"

	"github.com/cubeplexai/cubepod/internal/poddapi"
)

// Config is what podd is told at its start.
type Config struct {
	Addr      string
	TokenFile string
	Workdir   string
	StateDir  string
	version   bool
}

func defaultConfig() Config {
	return Config{Addr: poddapi.Addr, Workdir: poddapi.Workdir, StateDir: "/var/lib/podd"}
}

// setting is one line of --help.
type setting struct {
	flag, env, help string
	value           *string
}

func (c *Config) settings() []setting {
	return []setting{
		{"addr", "CUBEPOD_ADDR", "where to listen: host:port or unix:PATH", &c.Addr},
		{"token-file", "CUBEPOD_TOKEN_FILE", "file with the full token in its first line and the tunnel token, if any, in its second; without it every caller is served", &c.TokenFile},
		{"workdir", "CUBEPOD_WORKDIR", "where commands run and relative paths start", &c.Workdir},
		{"state-dir", "CUBEPOD_STATE_DIR", "where ids and finished commands outlive podd", &c.StateDir},
	}
}

// parseConfig reads flags, and the environment for those that are absent.
// Usage and errors go to out.
func parseConfig(args []string, getenv func(string) string, out io.Writer) (Config, error) {
	c := defaultConfig()
	fs := flag.NewFlagSet("podd", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.BoolVar(&c.version, "version", false, "print the version and exit")
	for _, s := range c.settings() {
		fallback := *s.value
		fs.StringVar(s.value, s.flag, cmp.Or(getenv(s.env), fallback), s.help)
		s.help += fmt.Sprintf(" (%s, default %q)", s.env, fallback)
		fs.Lookup(s.flag).Usage = s.help
	}
	fs.Usage = func() {
		fmt.Fprintln(out, "podd runs commands, moves files and opens ports in a sandbox, over HTTP.\n\nSettings (environment, default):")
		fs.VisitAll(func(f *flag.Flag) { fmt.Fprintf(out, "  --%-12s %s\n", f.Name, f.Usage) })
	}
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	if fs.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return c, c.Validate()
}

// Validate reports the first setting that cannot be right.
func (c Config) Validate() error {
	if path, ok := strings.CutPrefix(c.Addr, "unix:"); ok {
		if path == "" {
			return errors.New("addr: unix: without a path")
		}
	} else if _, _, err := net.SplitHostPort(c.Addr); err != nil {
		return fmt.Errorf("addr: %w", err)
	}
	for _, s := range c.settings()[2:] {
		if !filepath.IsAbs(*s.value) {
			return fmt.Errorf("%s: %q is not absolute", s.flag, *s.value)
		}
	}
	return nil
}
