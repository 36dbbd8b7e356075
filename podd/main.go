// Command podd is the daemon in a sandbox: it runs commands, moves files, and
// opens the sandbox's ports to who shows its token. internal/poddapi has the
// wire types.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/podd/command"
	"github.com/cubeplexai/cubepod/podd/desktop"
	"github.com/cubeplexai/cubepod/podd/guest"
	"github.com/cubeplexai/cubepod/podd/server"
)

// closeTimeout bounds the graceful end.
const closeTimeout = 10 * time.Second

// The main goroutine keeps the main thread, which is the parent of every
// orphan; see reapOrphans.
func init() { runtime.LockOSThread() }

func main() {
	logger := log.New(os.Stderr, "[podd] ", 0)
	config, err := parseConfig(os.Args[1:], os.Getenv, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fatal(logger, err)
	case config.version:
		fmt.Println(version())
		return
	}
	if err := run(config, logger); err != nil {
		fatal(logger, err)
	}
}

// fatal ends podd with status 1. It is the only status but 0 that podd gives
// itself: any other tells podd-init that it crashed.
func fatal(logger *log.Logger, err error) {
	logger.Print(err)
	os.Exit(1)
}

// run serves until SIGTERM, SIGINT or SIGHUP.
func run(config Config, logger *log.Logger) error {
	reserveThreads()
	syscall.Umask(0o022)
	guest.Prepare(config.Workdir, logger)
	if err := becomeSubreaper(); err != nil {
		logger.Printf("become subreaper: %v", err)
	}
	options := server.Options{
		Addr: config.Addr, Workdir: config.Workdir, InitState: os.Getenv("CUBEPOD_INIT_STATE"), Version: version(), Log: logger,
	}
	if config.TokenFile == "" {
		logger.Print("no token file: every caller is served")
	} else {
		var err error
		if options.Tokens, err = server.ReadTokens(config.TokenFile); err != nil {
			return err
		}
	}
	commands, err := command.Open(command.Options{StateDir: config.StateDir, Workdir: config.Workdir, Shield: true, Log: logger})
	if err != nil {
		return err
	}
	stopDesktop := func() error { return nil }
	if _, err := os.Stat(poddapi.CtlPath); err == nil {
		d := desktop.New(poddapi.CtlPath, desktop.Chromium, logger)
		if err := d.Listen(desktop.Addr); err != nil {
			logger.Printf("browser port: %v; whoever has it keeps it", err)
		}
		options.Desktop, stopDesktop = d, d.Close
	}
	srv := server.New(commands, options)
	if err := srv.Listen(); err != nil {
		return errors.Join(err, stopDesktop(), commands.Close())
	}
	logger.Printf("listening on %s", srv.Addr())

	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	children := make(chan os.Signal, 1) // one stands for any number
	signal.Notify(children, syscall.SIGCHLD)
	served := make(chan error, 1)
	go func() { served <- srv.Serve() }()
	err = attend(stop, children, served, commands)

	// The commands first, so that who waits for one gets its answer.
	closed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		closed <- errors.Join(stopDesktop(), commands.Close(), srv.Close(ctx))
	}()
	return errors.Join(err, <-closed)
}

// reapDelay is how long orphans may wait for each other: the signal comes for
// every command too, and a look for each would cost the commands' speed.
const reapDelay = 10 * time.Millisecond

// attend reaps orphans until podd is told to stop or cannot serve any more.
func attend(stop, signalled <-chan os.Signal, served <-chan error, commands *command.Manager) error {
	children := signalled    // nil while a look is due
	var due <-chan time.Time // nil while there is nothing to reap
	for {
		select {
		case <-children:
			children, due = nil, time.After(reapDelay)
		case <-due:
			children, due = signalled, nil
			if reapOrphans() > 0 {
				commands.OrphanReaped()
			}
		case err := <-served:
			return err
		case <-stop:
			return nil
		}
	}
}

// version is what the build recorded.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version
}
