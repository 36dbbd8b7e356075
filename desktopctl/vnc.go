package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/cubeplexai/cubepod/desktopctl/daemon"
	"github.com/cubeplexai/cubepod/desktopctl/x11"
)

// vncSocket is where the VNC server listens: a path in the guest user's own
// directory, out of reach of pages and of other users.
func (c Config) vncSocket() string { return filepath.Join(c.RunDir, "vnc.sock") }

// vncServer is a program that shows the display to viewers.
type vncServer struct {
	program string
	args    func(socket string) []string
	// files limits the open files.
	files uint64
	// unicode says that clipboard text may be more than Latin-1.
	unicode bool
	// rereads says that it sees what others do to the keyboard map.
	rereads bool
}

// vncServers are the ones to choose from, by the name in the settings. See the
// table in images/desktop/README.md.
var vncServers = map[string]vncServer{
	"x11vnc": {
		program: "x11vnc",
		args: func(socket string) []string {
			return []string{
				"-display", display,
				// A Unix socket, and no TCP of either family. Nobody is ever
				// locked out for coming back too often on one.
				"-unixsock", socket, "-rfbport", "0", "-rfbportv6", "0", "-no6",
				"-norc",               // no configuration but this
				"-shared", "-forever", // any number of viewers, at any time
				"-nopw",   // the socket's directory is the password
				"-xrandr", // the screen may change its size
				"-xkb",    // keys by symbol, whatever the viewer's layout
				// Tricks for slow lines that paint wrongly now and then.
				"-noxrecord", "-nowirecopyrect", "-noscrollcopyrect",
				"-nodpms", "-nolookup", "-quiet",
			}
		},
		// It closes all files it could have open, one by one, at every connect.
		files: 256,
	},
	"x0vncserver": {
		program: "X0tigervnc", // x0vncserver is a script around it
		args: func(socket string) []string {
			return []string{
				"-display", display,
				"-rfbunixpath", socket, "-rfbport", "-1",
				"-SecurityTypes", "None", // the socket's directory is the password
				"-UseBlacklist=0", "-AlwaysShared",
				"-AcceptSetDesktopSize=0", // the size is the sandbox's to choose
				// What is merely selected is not copied yet.
				"-SendPrimary=0", "-SetPrimary=0",
				"-MaxCutText", "4194304",
				"-Log", "*:stderr:30",
			}
		},
		files:   1024,
		unicode: true,
		rereads: true,
	},
}

func (s *Stack) prepareVNC() (daemon.Spec, error) {
	server := vncServers[s.cfg.VNC]
	path, err := findProgram(server.program)
	if err != nil {
		return daemon.Spec{}, err
	}
	if err := os.RemoveAll(s.cfg.vncSocket()); err != nil {
		return daemon.Spec{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerPatience)
	defer cancel()
	conn, err := x11.Dial(ctx, display)
	if err != nil {
		return daemon.Spec{}, err
	}
	defer conn.Close()
	// What an earlier server has put on these keys is of no use to this one.
	if err := conn.FreeKeys(); err != nil {
		return daemon.Spec{}, fmt.Errorf("free keys: %w", err)
	}
	return daemon.Spec{
		Args:      append([]string{path}, server.args(s.cfg.vncSocket())...),
		OpenFiles: server.files,
	}, nil
}

// keysPatience is how long the display's programs get to read a new keyboard
// map. None of them tells that it has.
const keysPatience = 100 * time.Millisecond

// giveKeys gives characters keys of their own, before the VNC server presses
// them, and waits until programs know. It is nil for a server that would not
// find those keys, and has to give its own.
func (s vncServer) giveKeys() func(context.Context, []uint32) error {
	if !s.rereads {
		return nil
	}
	spare := new(x11.SpareKeys)
	return func(ctx context.Context, symbols []uint32) error {
		ctx, cancel := context.WithTimeout(ctx, answerPatience)
		defer cancel()
		conn, err := x11.Dial(ctx, display)
		if err != nil {
			return err
		}
		defer conn.Close()
		changed, err := spare.Give(conn, symbols)
		if err != nil || !changed {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(keysPatience):
			return nil
		}
	}
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
