package command

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
)

// stdin is the writing side of a command's input.
type stdin struct {
	file     *os.File // non-blocking
	terminal bool     // file is a pump's, which closes it

	turn sync.Mutex // held while one caller writes

	mu     sync.Mutex // guards the field below
	closed bool
}

// endOfInput is what a terminal in its usual mode takes for the end.
const endOfInput = "\x04"

// copy gives the command all of r, and the end of its input when eof is set.
// A command that does not read makes it wait, until ctx is done.
func (s *stdin) copy(ctx context.Context, r io.Reader, eof bool) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.file.SetWriteDeadline(time.Time{}) // an earlier caller may have left in a hurry
	stop := context.AfterFunc(ctx, func() { s.file.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := io.Copy(s.file, r); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return s.closedError(err)
	}
	if !eof {
		return nil
	}
	if s.terminal {
		_, err := io.WriteString(s.file, endOfInput)
		return s.closedError(err)
	}
	s.close()
	return nil
}

func (s *stdin) closedError(err error) error {
	if errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.EIO) {
		return apierror.Wrap(err, apierror.Conflict, "stdin_closed", "the command's stdin is closed")
	}
	return err
}

// close ends the input, and whoever writes it. A terminal's stays with its
// pump.
func (s *stdin) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed && !s.terminal {
		s.file.Close()
	}
	s.closed = true
}
