package main

import (
	"context"
	_ "embed"
	"net"
	"path/filepath"
	"time"

	"github.com/cubeplexai/cubepod/desktopctl/daemon"
	"github.com/cubeplexai/cubepod/desktopctl/x11"
)

// openboxConfig makes the browser's windows fill the screen, without a frame.
//
//go:embed openbox.xml
var openboxConfig []byte

func (s *Stack) prepareWM() (daemon.Spec, error) {
	path, err := findProgram("openbox")
	if err != nil {
		return daemon.Spec{}, err
	}
	config := filepath.Join(s.cfg.RunDir, "openbox.xml")
	if err := daemon.ReplaceFile(config, openboxConfig, 0o644); err != nil {
		return daemon.Spec{}, err
	}
	return daemon.Spec{Args: []string{path, "--sm-disable", "--config-file", config}}, nil
}

func (s *Stack) wmReady(ctx context.Context, _ *daemon.Process) error {
	conn, err := x11.Dial(ctx, display)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.AwaitWindowManager()
}

// dialUnix connects to a Unix socket; ctx also bounds the conversation.
func dialUnix(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(answerPatience)
	}
	return conn, conn.SetDeadline(deadline)
}
