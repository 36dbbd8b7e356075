package main

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cubeplexai/cubepod/desktopctl/daemon"
)

// ttydPidFile is where others look for a running ttyd, and where we look for
// theirs. A program that starts one itself, unless this file names one that
// runs, then finds ours.
const ttydPidFile = "/tmp/ttyd.pid"

// ttydSocket is where ttyd listens, behind our guard.
func (c Config) ttydSocket() string { return filepath.Join(c.RunDir, "ttyd.sock") }

// shellSocket is where the shell is that ttyd shows.
func (c Config) shellSocket() string { return filepath.Join(c.RunDir, "shell.sock") }

// ensureTerminal makes the terminal run and answer, whoever started it.
func (s *Stack) ensureTerminal(ctx context.Context) error {
	if s.found[ttyd] == nil {
		if p := foreignTtyd(); p != nil && httpAnswers(ctx, pageURL(terminalPort)) == nil {
			s.setAlive(ttyd, p)
			return nil
		}
	}
	return s.ensure(ctx, s.component(ttyd))
}

// foreignTtyd is the ttyd that somebody else has started on our port, if there
// is one: it serves the terminal as well as ours would, and is not ours to end.
func foreignTtyd() *daemon.Process {
	b, err := daemon.ReadFile(ttydPidFile)
	if err != nil {
		return nil
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || daemon.Vacant(loopbackAddr(terminalPort)) == nil {
		return nil
	}
	return daemon.Running(pid, "ttyd")
}
