package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cubeplexai/cubepod/desktopctl/daemon"
	"github.com/cubeplexai/cubepod/desktopctl/terminal"
	"github.com/cubeplexai/cubepod/desktopctl/viewer"
	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/cdpfront"
	"github.com/cubeplexai/cubepod/internal/loopback"
)

const (
	// headerLimit bounds the time a client may take to say what it wants.
	headerLimit = 10 * time.Second
	// frontRetry is how often the viewer looks whether port 9222 was given
	// up. Nothing tells when a port becomes free.
	frontRetry = 2 * time.Second
)

// closingHandler is a handler with connections that outlive their requests.
type closingHandler interface {
	http.Handler
	io.Closer
}

// viewerCommand serves the viewer, and the front of the browser's DevTools
// port as long as nobody else does. It also keeps all the daemons' logs small,
// since it runs as long as they do.
func viewerCommand(ctx context.Context, cfg Config, args []string) (any, error) {
	if len(args) > 0 {
		return nil, apierror.New(apierror.Invalid, "invalid_arguments", "viewer takes no arguments")
	}
	server := vncServers[cfg.VNC]
	page := viewer.New(viewer.Options{
		WebDir:  cfg.pages("viewer"),
		Unicode: server.unicode,
		// A page may be quicker than the VNC server, which starts beside us:
		// waiting shows the first picture sooner than the page's next try.
		RFB:  viewer.Dial(cfg.vncSocket()),
		Keys: server.giveKeys(),
	})
	// The front is tried first: a viewer that answers has had its chance.
	first, err := listen(frontPort)
	if err != nil {
		fmt.Fprintf(cfg.Log, "port %d: %v; waiting for it\n", frontPort, err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return holdFront(ctx, cfg, first) })
	g.Go(func() error {
		daemon.Dir(cfg.RunDir).KeepLogsSmall(ctx, func(err error) { fmt.Fprintln(cfg.Log, err) })
		return nil
	})
	g.Go(func() error {
		l, err := listen(viewerPort)
		if err != nil {
			return err
		}
		return serve(ctx, l, guarded{loopback.Guard(viewerPort, page), page})
	})
	return nil, g.Wait()
}

// terminalCommand serves the terminal, by ttyd where that is installed.
func terminalCommand(ctx context.Context, cfg Config, args []string) (any, error) {
	if len(args) > 0 {
		return nil, apierror.New(apierror.Invalid, "invalid_arguments", "terminal takes no arguments")
	}
	public, err := listen(terminalPort)
	if err != nil {
		return nil, err
	}
	shell := terminal.New(terminal.Options{WebDir: cfg.pages("terminal"), Env: cfg.environment()})
	g, ctx := errgroup.WithContext(ctx)
	var page closingHandler = shell
	if program, err := findProgram("ttyd"); err == nil {
		// Its viewers come to the shell by a socket of their own.
		private, err := listenUnix(cfg.shellSocket())
		if err != nil {
			return nil, err
		}
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		ttyd := terminal.NewTtyd(shell, terminal.TtydOptions{
			Program: program,
			Socket:  cfg.ttydSocket(),
			PidFile: ttydPidFile,
			Attach:  []string{self, "attach"},
			Env:     append(cfg.environment(), cfg.export()...),
			Log:     cfg.Log,
		})
		ttyd.Start()
		page = ttyd
		g.Go(func() error { return serve(ctx, private, shell) })
	}
	g.Go(func() error { return serve(ctx, public, guarded{loopback.Guard(terminalPort, page), page}) })
	return nil, g.Wait()
}

// attachCommand shows the terminal's shell on the terminal we were given.
func attachCommand(ctx context.Context, cfg Config, args []string) (any, error) {
	if len(args) > 0 {
		return nil, apierror.New(apierror.Invalid, "invalid_arguments", "attach takes no arguments")
	}
	return nil, terminal.Attach(ctx, cfg.shellSocket(), os.Stdin)
}

// guarded is a handler behind a guard that knows nothing of closing.
type guarded struct {
	http.Handler
	io.Closer
}

// holdFront serves port 9222 on l, or, when that is nil, as soon as the port
// is free.
func holdFront(ctx context.Context, cfg Config, l net.Listener) error {
	tick := time.NewTicker(frontRetry)
	defer tick.Stop()
	for l == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			l, _ = listen(frontPort)
		}
	}
	upstream := loopbackAddr(cdpPort).String()
	return serve(ctx, l, cdpfront.New(upstream, func(ctx context.Context) error { return startAgain(ctx, cfg) }))
}

// startAgain brings a browser back that ended, for a client that asks for it.
func startAgain(ctx context.Context, cfg Config) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "start")
	cmd.Env = append(cfg.environment(), cfg.export()...)
	cmd.Stderr = cfg.Log
	if err := cmd.Run(); err != nil {
		return apierror.Wrap(err, apierror.Unavailable, "desktop_start_failed", "the desktop does not start")
	}
	return nil
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp4", loopbackAddr(port).String())
}

// listenUnix listens at path in place of whoever did before.
func listenUnix(path string) (net.Listener, error) {
	if err := os.RemoveAll(path); err != nil {
		return nil, err
	}
	return net.Listen("unix", path)
}

// serve answers requests on l until ctx ends, and then closes h.
func serve(ctx context.Context, l net.Listener, h closingHandler) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: headerLimit}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
		// What is upgraded is h's to end; what is not is a page's file.
		err = errors.Join(srv.Close(), <-served)
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return errors.Join(err, h.Close())
}
