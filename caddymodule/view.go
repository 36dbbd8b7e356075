package caddymodule

import (
	"net/http"
	"strings"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/paneltoken"
)

// socketPath is where the desktop's own servers have their WebSocket.
func socketPath(port int) string {
	switch port {
	case viewerPort:
		return "/websockify"
	case terminalPort:
		return "/ws"
	}
	return ""
}

// judgeOf gives who follows what a client sends to a port's socket. Only the
// desktop's own sockets are known; the rest may say what it likes.
func judgeOf(port int, rest string, view bool) judge {
	if path, _, _ := strings.Cut(rest, "?"); path == socketPath(port) {
		switch port {
		case viewerPort:
			return &rfbClient{view: view}
		case terminalPort:
			return &ttyClient{view: view}
		}
	}
	return anyData{}
}

var (
	errViewPort = apierror.New(apierror.Forbidden, "view_only", "a view-only link is for the viewer and the terminal")
	errViewDoes = apierror.New(apierror.Forbidden, "view_only", "this panel link is view-only")
)

// allowView refuses what somebody who only looks on may not do: he reads the
// pages, and opens the one WebSocket, which [clientFrames] filters.
func allowView(c paneltoken.Claims, r *http.Request, w *responseWriter, rest string) error {
	if c.Mode != paneltoken.View {
		return nil
	}
	if c.Port != viewerPort && c.Port != terminalPort {
		return errViewPort
	}
	if w.upgrade {
		if _, unknown := judgeOf(c.Port, rest, true).(anyData); unknown {
			return errViewDoes
		}
		return nil
	}
	if (r.Method != http.MethodGet && r.Method != http.MethodHead) || hasToken(r.Header["Connection"], "upgrade") {
		return errViewDoes
	}
	return nil
}
