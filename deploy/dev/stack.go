package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
)

// upTimeout bounds the wait until a program answers.
const upTimeout = 60 * time.Second

// graces are how long each program may take to end.
var graces = map[string]time.Duration{
	"engine": 30 * time.Second,
	"api":    50 * time.Second, // it ends its calls and pauses every sandbox first
	"edge":   15 * time.Second,
}

// facts is the content of dev.json.
type facts struct {
	ConsoleURL  string `json:"consoleUrl"`
	APIURL      string `json:"apiUrl"`
	EdgeURL     string `json:"edgeUrl"` // the panels' origin
	APIKey      string `json:"apiKey"`
	SandboxID   string `json:"sandboxID"`
	DesktopURL  string `json:"desktopUrl"`
	TerminalURL string `json:"terminalUrl"`
	CDPURL      string `json:"cdpUrl"`
}

// stack is everything that runs. Close ends it.
type stack struct {
	cfg      Config
	children []*child
	died     chan error // gets the first program that ended by itself
	closing  chan struct{}
}

// start brings the stack up and tells out how it goes. When it fails, what had
// been started is ended again.
func start(ctx context.Context, c Config, out io.Writer) (_ *stack, err error) {
	if err := checkPorts(c); err != nil {
		return nil, err
	}
	s := &stack{cfg: c, died: make(chan error, 1), closing: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()

	f := facts{
		ConsoleURL: localhost("http", c.ConsolePort) + "/",
		APIURL:     localhost("http", c.ConsolePort),
		EdgeURL:    localhost("http", c.PanelPort),
	}
	note := "The local runtime is for development: its sandboxes share this machine's kernel and /usr."
	if c.Runtime == "docker" {
		note = "Sandboxes are containers; docker ps shows those that run."
		if err := s.prepareDocker(ctx, out); err != nil {
			return nil, err
		}
	}
	fmt.Fprintln(out, "starting the session API")
	if err := s.startAPI(ctx, f.EdgeURL); err != nil {
		return nil, err
	}
	fmt.Fprintln(out, "starting the edge")
	if err := s.startEdge(ctx, f); err != nil {
		return nil, err
	}
	key, err := os.ReadFile(filepath.Join(c.Data, "keys", "admin-key"))
	if err != nil {
		return nil, fmt.Errorf("read the API key: %w", err)
	}
	f.APIKey = strings.TrimSpace(string(key))

	api := &apiClient{url: f.APIURL, key: f.APIKey}
	fmt.Fprintln(out, "starting a sandbox and its desktop")
	if err := api.firstSandbox(ctx, c.Runtime, &f); err != nil {
		return nil, err
	}
	if err := writeFacts(filepath.Join(c.Data, "dev.json"), f); err != nil {
		return nil, err
	}
	fmt.Fprintf(out, `
  console   %s#key=%s
  desktop   %s
  terminal  %s
  CDP       %s
  HTTPS     %s (console), %s (panels), with a certificate of Caddy's own CA

%s
The same facts are in %s; logs are in %s. Ctrl-C stops everything.

ready: open the console link above
`, f.ConsoleURL, f.APIKey, f.DesktopURL, f.TerminalURL, f.CDPURL, localhost("https", c.ConsoleTLS), localhost("https", c.PanelTLS), note,
		filepath.Join(c.Data, "dev.json"), filepath.Join(c.Data, "logs"))
	return s, nil
}

func localhost(scheme string, port int) string {
	return scheme + "://localhost:" + strconv.Itoa(port)
}

// sites are the addresses of one site, as a Caddyfile lists them.
func sites(tls, plain int) string {
	return fmt.Sprintf("https://localhost:%d, http://localhost:%d, http://127.0.0.1:%d", tls, plain, plain)
}

func (s *stack) startAPI(ctx context.Context, panels string) error {
	args := []string{
		"--listen", s.cfg.API,
		"--metrics-listen", s.cfg.Metrics,
		"--redis", "embedded",
		"--runtime", s.cfg.Runtime,
		"--data", s.cfg.Data,
		"--panel-base-url", panels,
	}
	if s.cfg.Runtime == "docker" {
		args = append(args, "--require-firewall")
	}
	c, err := s.spawn("api", filepath.Join(s.cfg.BinDir, "cubepod-sessionapi"), args, nil)
	if err != nil {
		return err
	}
	url := "http://" + s.cfg.API + "/ready"
	return s.waitFor(ctx, c, url, func(ctx context.Context) error { return ask(ctx, url) })
}

func (s *stack) startEdge(ctx context.Context, f facts) error {
	data := s.cfg.Data
	sandboxes := ""
	if s.cfg.Runtime == "docker" {
		sandboxes = dockerNetworks
	}
	c, err := s.spawn("edge", filepath.Join(s.cfg.BinDir, "cubepod-edge"),
		[]string{"run", "--config", s.cfg.Caddyfile, "--adapter", "caddyfile"},
		[]string{
			"CUBEPOD_ADMIN=unix/" + filepath.Join(data, "edge-admin.sock"),
			"CUBEPOD_REDIS=unix://" + filepath.Join(data, "redis", "redis.sock"),
			"CUBEPOD_PANEL_KEYS=" + filepath.Join(data, "keys", "panel"),
			"CUBEPOD_TUNNEL_KEY_FILE=" + filepath.Join(data, "keys", "tunnel"),
			"CUBEPOD_LOCAL_SOCKETS=" + filepath.Join(data, "sockets"),
			"CUBEPOD_SANDBOX_NETWORK=" + sandboxes,
			"CUBEPOD_CADDY_STORAGE=" + filepath.Join(data, "caddy"),
			"CUBEPOD_API_URL=http://" + s.cfg.API,
			"CUBEPOD_PANEL_SITE=" + sites(s.cfg.PanelTLS, s.cfg.PanelPort),
			"CUBEPOD_API_SITE=" + sites(s.cfg.ConsoleTLS, s.cfg.ConsolePort),
			fmt.Sprintf("CUBEPOD_OTHER_NAMES=https://:%d, https://:%d, http://:%d, http://:%d",
				s.cfg.ConsoleTLS, s.cfg.PanelTLS, s.cfg.ConsolePort, s.cfg.PanelPort),
		})
	if err != nil {
		return err
	}
	url := f.APIURL + "/health"
	return s.waitFor(ctx, c, url, func(ctx context.Context) error { return ask(ctx, url) })
}

// spawn starts a program and watches it.
func (s *stack) spawn(name, path string, args, env []string) (*child, error) {
	c, err := startChild(s.cfg.Data, name, path, args, env)
	if err != nil {
		return nil, err
	}
	s.children = append(s.children, c)
	go func() { // ends with the program, which Close ends and waits for
		<-c.done
		select {
		case <-s.closing:
		default:
			select {
			case s.died <- c.died():
			default: // another was first
			}
		}
	}()
	return c, nil
}

// waitFor returns once ask, which asks what says, has no error, and fails when
// the program ends.
func (s *stack) waitFor(ctx context.Context, c *child, what string, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		switch err := ask(ctx); {
		case err == nil:
			return nil
		case isFinal(err):
			return err
		}
		select {
		case <-tick.C:
		case <-c.done:
			return c.died()
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer at %s: %w\n%s", c.name, what, ctx.Err(), tail(c.log, 15))
		}
	}
}

// ask returns nil when url answers 200.
func ask(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := direct.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return apierror.Read(resp)
	}
	return nil
}

// isFinal tells an answer that waiting does not change: this machine cannot run
// sandboxes, and the message says what it lacks.
func isFinal(err error) bool {
	e, ok := errors.AsType[*apierror.Error](err)
	return ok && e.WireCode() == "runtime_unavailable"
}

// direct calls this machine only, whatever proxy the environment names.
var direct = &http.Client{Transport: &http.Transport{
	DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
}}

// Close ends the programs, the last started first, and waits for them.
func (s *stack) Close() error {
	close(s.closing)
	direct.CloseIdleConnections()
	var errs []error
	for i := len(s.children) - 1; i >= 0; i-- {
		c := s.children[i]
		errs = append(errs, c.stop(graces[c.name]))
	}
	os.Remove(filepath.Join(s.cfg.Data, "dev.json")) // its URLs are dead now
	return errors.Join(errs...)
}

// writeFacts writes dev.json, which holds the API key, for its owner only.
func writeFacts(path string, f facts) error {
	data, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".dev-*.json") // mode 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(append(data, '\n'))
	if err = errors.Join(err, tmp.Close(), giveToCaller(tmp.Name())); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
