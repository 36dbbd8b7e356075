// Command cubepod-desktop-ctl starts, watches over and stops a sandbox's
// desktop: an X server, a window manager, Chromium, a VNC server and our own
// viewer and terminal. It is a command and not a daemon: what it starts
// outlives it, and every call looks anew at what is there.
//
// It prints one line of JSON on standard output and everything else on
// standard error.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/cubeplexai/cubepod/internal/apierror"
)

const usage = `usage: cubepod-desktop-ctl COMMAND

  start [--resolution WxHx24] [--url URL]
                     start what of the desktop is not running; without flags
                     a running one stays as it is
  status             say what runs, without waiting for a start or stop
  stop               close the browser, then everything else
  screenshot FILE    write the screen as PNG, to standard output for "-"
  focus TARGET-ID    bring a browser tab to the front

  viewer, terminal   run one of our own daemons in the foreground; start does
  attach             show the terminal's shell on the terminal we run on

--resolution is 320x200x24 to 3840x2160x24.
--url is http, https or about:blank: a tab is opened unless one shows it.

Settings, by environment:
`

// command is one sub-command. What it returns is printed as JSON.
type command func(ctx context.Context, cfg Config, args []string) (any, error)

var commands = map[string]command{
	"start":      startCommand,
	"status":     statusCommand,
	"stop":       stopCommand,
	"screenshot": screenshotCommand,
	"focus":      focusCommand,
	"viewer":     viewerCommand,
	"terminal":   terminalCommand,
	"attach":     attachCommand,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run executes a command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		printUsage(stderr)
		return 2
	}
	switch args[0] {
	case "help", "-h", "--help":
		printUsage(stdout)
		return 0
	}
	result, err := dispatch(ctx, args[0], args[1:], stderr)
	if errors.Is(err, flag.ErrHelp) {
		printUsage(stdout)
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "cubepod-desktop-ctl: %s: %v\n", args[0], err)
		e := apierror.From(err)
		result = failure{Status: "error", Error: e.WireCode(), Message: e.Detail}
	}
	if result != nil {
		line, _ := json.Marshal(result) // strings and numbers cannot fail
		fmt.Fprintf(stdout, "%s\n", line)
	}
	if err != nil {
		return 1
	}
	return 0
}

func dispatch(ctx context.Context, name string, args []string, stderr io.Writer) (any, error) {
	cmd, ok := commands[name]
	if !ok {
		return nil, apierror.New(apierror.Invalid, "unknown_command", "there is no command %q; see --help", name)
	}
	cfg, err := loadConfig(os.Getenv, settingsFile, stderr)
	if err != nil {
		return nil, err
	}
	if err := keepFiles(); err != nil {
		return nil, fmt.Errorf("keep files: %w", err)
	}
	if err := becomeGuest(cfg); err != nil {
		return nil, err
	}
	return cmd(ctx, cfg, args)
}

// failure is what a command that failed prints.
type failure struct {
	Status  string `json:"status"`
	Error   string `json:"error"`
	Message string `json:"message"`
}

// parseFlags parses args into fs and wants exactly n arguments after the flags.
func parseFlags(fs *flag.FlagSet, args []string, n int) error {
	fs.SetOutput(io.Discard)
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return apierror.New(apierror.Invalid, "invalid_arguments", "%v", err)
	case fs.NArg() != n:
		return apierror.New(apierror.Invalid, "invalid_arguments", "want %d arguments after the flags, got %d", n, fs.NArg())
	}
	return nil
}

func startCommand(ctx context.Context, cfg Config, args []string) (any, error) {
	fs := flag.NewFlagSet("start", flag.ContinueOnError)
	resolution := fs.String("resolution", "", "")
	url := fs.String("url", "", "")
	if err := parseFlags(fs, args, 0); err != nil {
		return nil, err
	}
	var req StartRequest
	if *resolution != "" {
		r, err := ParseResolution(*resolution)
		if err != nil {
			return nil, err
		}
		req.Resolution = &r
	}
	if *url != "" {
		if err := checkURL(*url); err != nil {
			return nil, err
		}
		req.URL = *url
	}
	return NewStack(cfg).Start(ctx, req)
}

func statusCommand(ctx context.Context, cfg Config, args []string) (any, error) {
	if err := parseFlags(flag.NewFlagSet("status", flag.ContinueOnError), args, 0); err != nil {
		return nil, err
	}
	return NewStack(cfg).Status(ctx), nil
}

func stopCommand(ctx context.Context, cfg Config, args []string) (any, error) {
	if err := parseFlags(flag.NewFlagSet("stop", flag.ContinueOnError), args, 0); err != nil {
		return nil, err
	}
	return NewStack(cfg).Stop(ctx)
}
