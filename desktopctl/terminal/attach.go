package terminal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"

	"github.com/coder/websocket"
	"golang.org/x/sys/unix"
)

// Attach shows the Terminal that listens on a Unix socket on the terminal tty,
// as any other viewer, until that or ctx ends.
func Attach(ctx context.Context, socket string, tty *os.File) error {
	restore, err := rawMode(int(tty.Fd()))
	if err != nil {
		return err
	}
	defer restore()
	conn, err := dialTerminal(ctx, socket)
	if err != nil {
		return err
	}
	defer conn.CloseNow()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	resized := make(chan os.Signal, 1)
	signal.Notify(resized, unix.SIGWINCH)
	defer signal.Stop(resized)
	if err := sendSize(ctx, conn, "", tty); err != nil {
		return err
	}
	var own sync.WaitGroup
	defer own.Wait()
	own.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-resized:
				if sendSize(ctx, conn, "1", tty) != nil {
					return
				}
			}
		}
	})
	// Nobody waits for this one: a read of a terminal ends with the process,
	// which is what becomes of a program that was attached.
	go func() {
		defer conn.CloseNow()
		buf := make([]byte, 1+readSize)
		buf[0] = '0'
		for {
			n, err := tty.Read(buf[1:])
			if err != nil || conn.Write(ctx, websocket.MessageBinary, buf[:1+n]) != nil {
				return
			}
		}
	}()
	defer cancel()
	return show(ctx, conn, tty)
}

// show writes what the Terminal prints to tty until either ends.
func show(ctx context.Context, conn *websocket.Conn, tty *os.File) error {
	for {
		_, msg, err := conn.Read(ctx)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) || websocket.CloseStatus(err) != -1 {
				return nil
			}
			return fmt.Errorf("read from the terminal: %w", err)
		}
		if len(msg) > 0 && msg[0] == '0' {
			if _, err := tty.Write(msg[1:]); err != nil {
				return nil //nolint:nilerr // the viewer has gone
			}
		}
	}
}

func dialTerminal(ctx context.Context, socket string) (*websocket.Conn, error) {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}
	conn, _, err := websocket.Dial(ctx, "ws://terminal/ws", &websocket.DialOptions{
		HTTPClient:   &http.Client{Transport: transport},
		Subprotocols: []string{Subprotocol},
	})
	if err != nil {
		return nil, fmt.Errorf("reach the terminal: %w", err)
	}
	conn.SetReadLimit(-1) // it comes from ourselves
	return conn, nil
}

// sendSize tells the Terminal how large tty is.
func sendSize(ctx context.Context, conn *websocket.Conn, kind string, tty *os.File) error {
	size, err := unix.IoctlGetWinsize(int(tty.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return fmt.Errorf("read the terminal's size: %w", err)
	}
	body, err := json.Marshal(struct {
		AuthToken string
		Columns   uint16 `json:"columns"`
		Rows      uint16 `json:"rows"`
	}{"", size.Col, size.Row})
	if err != nil {
		return err
	}
	return conn.Write(ctx, websocket.MessageText, append([]byte(kind), body...))
}

// rawMode makes the terminal at fd hand every byte through as it is, and
// returns what undoes that.
func rawMode(fd int) (restore func(), err error) {
	old, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("read the terminal's settings: %w", err)
	}
	raw := *old
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &raw); err != nil {
		return nil, fmt.Errorf("make the terminal raw: %w", err)
	}
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, old) }, nil
}
