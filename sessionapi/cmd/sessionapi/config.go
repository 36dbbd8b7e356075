package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/cubeplexai/cubepod/sessionapi/docker"
)

// embedded is the value of --redis that starts a server of our own.
const embedded = "embedded"

// Config is what the program is told. Each field is a flag and an environment
// variable; see [Config.settings].
type Config struct {
	Listen        string
	MetricsListen string
	Redis         string
	Runtime       string
	Templates     string
	APIKeys       string
	MasterKey     string
	TunnelKey     string
	PanelKeys     string
	PanelBaseURL  string
	ExposeCDP     bool
	Desktop       bool
	AllowUpstream []netip.Prefix
	RateLimit     float64
	Data          string
	GuestDir      string

	// Of the docker runtime.
	Network          string
	ContainerRuntime string
	RequireFirewall  bool
}

func defaultConfig() Config {
	return Config{
		Listen:        ":8090",
		MetricsListen: "127.0.0.1:8091",
		Redis:         embedded,
		Runtime:       "local",
		ExposeCDP:     true,
		Desktop:       true,
		RateLimit:     500,
		Data:          "./.cubepod",
		Network:       docker.DefaultNetwork,
	}
}

// setting is one line of --help.
type setting struct {
	name, env, usage string
	value            flag.Value
}

func (c *Config) settings() []setting {
	return []setting{
		{"listen", "CUBEPOD_LISTEN", "`address` of the API", (*text)(&c.Listen)},
		{"metrics-listen", "CUBEPOD_METRICS_LISTEN", "`address` of /metrics; empty for none", (*text)(&c.MetricsListen)},
		{"redis", "CUBEPOD_REDIS", "\"embedded\" for a redis-server of its own, or a `URL`: redis://, rediss:// or unix://, with ?addr= repeated (Cluster) or ?master_name= (Sentinel)", (*text)(&c.Redis)},
		{"runtime", "CUBEPOD_RUNTIME", "`name` of what runs sandboxes: " + strings.Join(runtimes, " or "), (*text)(&c.Runtime)},
		{"templates", "CUBEPOD_TEMPLATES", "YAML `file` of templates; the built-in ones, base and desktop, without it", (*text)(&c.Templates)},
		{"api-keys", "CUBEPOD_API_KEYS", "`file` of API keys, a line each: name sha256:<hex of the key> [admin]", (*text)(&c.APIKeys)},
		{"master-key", "CUBEPOD_MASTER_KEY_FILE", "`file` of keys for podd's full tokens, a line each: kid base64:<at least 32 bytes>", (*text)(&c.MasterKey)},
		{"tunnel-key", "CUBEPOD_TUNNEL_KEY_FILE", "`file` of keys for podd's tunnel tokens, in the same form", (*text)(&c.TunnelKey)},
		{"panel-keys", "CUBEPOD_PANEL_KEYS", "`file` of keys for panel tokens, a line each: kid base64:<secret> or ed25519:<public key> [iss=NAME]; the first secret signs", (*text)(&c.PanelKeys)},
		{"panel-base-url", "CUBEPOD_PANEL_BASE_URL", "`URL` before panel paths, such as https://panels.example.com or https://{sandbox}.panels.example.com; relative URLs without it", (*text)(&c.PanelBaseURL)},
		{"expose-cdp", "CUBEPOD_EXPOSE_CDP", "whether port 9222 may be shown", (*boolean)(&c.ExposeCDP)},
		{"desktop", "CUBEPOD_DESKTOP", "whether desktops may be started", (*boolean)(&c.Desktop)},
		{"allow-upstream", "CUBEPOD_ALLOW_UPSTREAM", "`prefixes`, separated by commas, that a port's own address may be in; none by default", (*prefixes)(&c.AllowUpstream)},
		{"rate-limit", "CUBEPOD_RATE_LIMIT", "`number` of requests a second that each API key may make of this server; 0 for any", (*number)(&c.RateLimit)},
		{"data", "CUBEPOD_DATA", "`directory` of the local runtime and of the embedded Redis", (*text)(&c.Data)},
		{"guest-dir", "CUBEPOD_GUEST_DIR", "`directory` that holds guest/ and, for the local runtime, desktop/; the program's own by default", (*text)(&c.GuestDir)},
		{"network", "CUBEPOD_NETWORK", "`name` of the docker runtime's network", (*text)(&c.Network)},
		{"container-runtime", "CUBEPOD_CONTAINER_RUNTIME", "`name` of what the docker runtime lets run containers, such as runsc or kata; the engine's default without it", (*text)(&c.ContainerRuntime)},
		{"require-firewall", "CUBEPOD_REQUIRE_FIREWALL", "whether the docker runtime refuses to start sandboxes without the rules of \"cubepod-sessionapi firewall\"", (*boolean)(&c.RequireFirewall)},
	}
}

// parseConfig reads the environment and then args. It reports flag.ErrHelp
// after it has written the help to out.
func parseConfig(args []string, getenv func(string) string, out io.Writer) (Config, error) {
	c := defaultConfig()
	fs := flag.NewFlagSet("cubepod-sessionapi", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // errors are printed by main, once
	settings := c.settings()
	for _, s := range settings {
		fs.Var(s.value, s.name, s.usage)
	}
	help := func() { writeHelp(out, fs, settings) }
	fs.Usage = func() {}
	for _, s := range settings {
		if v := getenv(s.env); v != "" {
			if err := s.value.Set(v); err != nil {
				return c, fmt.Errorf("environment %s: %w", s.env, err)
			}
		}
	}
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			help()
		}
		return c, err
	}
	if fs.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return c, c.Validate()
}

func writeHelp(out io.Writer, fs *flag.FlagSet, settings []setting) {
	fmt.Fprint(out, "Usage: cubepod-sessionapi [flags]\n       cubepod-sessionapi firewall [flags]\n\nThe session API of CubePod; \"firewall\" sets the rules that the docker runtime needs on its host. A flag wins over its environment variable.\n\n")
	for _, s := range settings {
		f := fs.Lookup(s.name)
		arg, usage := flag.UnquoteUsage(f)
		if arg != "" {
			arg = " " + arg
		}
		fmt.Fprintf(out, "  --%s%s\n        %s\n        environment %s, default %q\n", s.name, arg, usage, s.env, f.DefValue)
	}
}

// Validate finds settings that cannot be, or cannot be together.
func (c *Config) Validate() error {
	if !slices.Contains(runtimes, c.Runtime) {
		return fmt.Errorf("--runtime: %q is not a runtime of this program; it has: %s", c.Runtime, strings.Join(runtimes, ", "))
	}
	if c.Data == "" {
		return errors.New("--data: a directory is needed")
	}
	if c.Redis != embedded {
		for _, need := range []struct{ flag, value string }{
			{"--api-keys", c.APIKeys}, {"--master-key", c.MasterKey}, {"--tunnel-key", c.TunnelKey}, {"--panel-keys", c.PanelKeys},
		} {
			if need.value == "" {
				return fmt.Errorf("%s is needed: keys are made only for an embedded Redis", need.flag)
			}
		}
	}
	return checkBaseURL(c.PanelBaseURL)
}

func checkBaseURL(base string) error {
	if base == "" {
		return nil
	}
	// The placeholder's braces are no host characters.
	plain := strings.Replace(base, "://{sandbox}.", "://sandbox.", 1)
	u, err := url.Parse(plain)
	switch {
	case strings.ContainsAny(plain, "{}"):
		return errors.New("--panel-base-url: {sandbox} is the first label of the host")
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return fmt.Errorf("--panel-base-url: %q is not an http or https URL", base)
	case u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return errors.New("--panel-base-url: only scheme, host and path go in it")
	}
	return nil
}

type text string

func (t *text) String() string     { return string(*t) }
func (t *text) Set(s string) error { *t = text(s); return nil }

type boolean bool

func (b *boolean) String() string   { return strconv.FormatBool(bool(*b)) }
func (b *boolean) IsBoolFlag() bool { return true }
func (b *boolean) Set(s string) error {
	v, err := strconv.ParseBool(s)
	if err != nil {
		return errors.New("want true or false")
	}
	*b = boolean(v)
	return nil
}

type number float64

func (n *number) String() string { return strconv.FormatFloat(float64(*n), 'g', -1, 64) }
func (n *number) Set(s string) error {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || v < 0 || v > 1e6 {
		return errors.New("want a number from 0 to a million")
	}
	*n = number(v)
	return nil
}

type prefixes []netip.Prefix

func (p *prefixes) String() string {
	var out []string
	for _, x := range *p {
		out = append(out, x.String())
	}
	return strings.Join(out, ",")
}

func (p *prefixes) Set(s string) error {
	*p = nil
	for part := range strings.SplitSeq(s, ",") {
		x, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil {
			return fmt.Errorf("%q is not a prefix such as 10.0.0.0/8", part)
		}
		if x = x.Masked(); !slices.Contains(*p, x) {
			*p = append(*p, x)
		}
	}
	return nil
}
