package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
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
	if err := os.WriteFile(config, openboxConfig, 0o644); err != nil {
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

// vncSocket is where the VNC server listens: a path in the guest user's own
// directory, out of reach of pages and of other users.
func (c Config) vncSocket() string { return filepath.Join(c.RunDir, "vnc.sock") }

func (s *Stack) prepareVNC() (daemon.Spec, error) {
	path, err := findProgram("x11vnc")
	if err != nil {
		return daemon.Spec{}, err
	}
	if err := os.Remove(s.cfg.vncSocket()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return daemon.Spec{}, err
	}
	return daemon.Spec{
		Args: []string{
			path, "-display", display,
			// A Unix socket, and no TCP of either family. Nobody is ever
			// locked out for coming back too often on one.
			"-unixsock", s.cfg.vncSocket(), "-rfbport", "0", "-rfbportv6", "0", "-no6",
			"-norc",               // no configuration but this
			"-shared", "-forever", // any number of viewers, at any time
			"-nopw",   // the socket's directory is the password
			"-xrandr", // the screen may change its size
			"-xkb",    // keys by symbol, whatever the viewer's layout
			// Tricks for slow lines that paint wrongly now and then.
			"-noxrecord", "-nowirecopyrect", "-noscrollcopyrect",
			"-nodpms", "-nolookup", "-quiet",
		},
		// It closes all files it could have open, one by one, at every connect.
		OpenFiles: 256,
	}, nil
}

// vncReady is ready when the server sends its banner and lets us go on: one
// that turns its clients away sends the banner first.
//
// We speak first, which the protocol allows: a server built on libvncserver
// waits 100 ms for the first bytes of a WebSocket handshake otherwise.
func (s *Stack) vncReady(ctx context.Context, _ *daemon.Process) error {
	conn, err := dialUnix(ctx, s.cfg.vncSocket())
	if err != nil {
		return err
	}
	defer conn.Close()
	const version = "RFB 003.008\n"
	if _, err := io.WriteString(conn, version); err != nil {
		return err
	}
	answer := make([]byte, len(version)+1) // and how many ways to log in there are
	if _, err := io.ReadFull(conn, answer); err != nil {
		return fmt.Errorf("read banner: %w", err)
	}
	if !bytes.HasPrefix(answer, []byte("RFB 003.")) || answer[len(version)] == 0 {
		return fmt.Errorf("banner %q lets nobody in", answer)
	}
	return nil
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
