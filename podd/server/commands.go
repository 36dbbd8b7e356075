package server

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/podd/command"
)

// run answers when the command is finished, or at once for a background one.
// The command does not depend on the caller's staying.
func (s *Server) run(w http.ResponseWriter, r *http.Request) error {
	var req poddapi.RunRequest
	if err := body(w, r, &req); err != nil {
		return err
	}
	c, started, err := s.commands.Run(req)
	if err != nil {
		return err
	}
	if req.Background {
		return reply(w, poddapi.RunResponse{Status: started})
	}
	select {
	case <-c.Done():
	case <-r.Context().Done():
		return context.Cause(r.Context())
	}
	return s.answer(w, c, req.OutputLimit)
}

// answer gives a finished command with the head of its output.
func (s *Server) answer(w http.ResponseWriter, c *command.Command, limit int64) error {
	if limit == 0 {
		limit = poddapi.MaxOutput
	}
	limit = min(limit, poddapi.MaxOutput)
	status := c.Status()
	out, _, err := c.Read(0, limit)
	if err != nil {
		return err
	}
	if int64(len(out)) < status.Cursor {
		out = out[:whole(out)]
		status.Truncated = true
	}
	status.Cursor = int64(len(out))
	a := poddapi.RunResponse{Status: status}
	a.Output, a.OutputB64 = text(out)
	if stdout, stderr, ok := c.Separate(limit); ok {
		var one, two string
		one, a.StdoutB64 = text(stdout)
		two, a.StderrB64 = text(stderr)
		a.Stdout, a.Stderr = &one, &two
	}
	return reply(w, a)
}

func (s *Server) listCommands(w http.ResponseWriter, _ *http.Request) error {
	return reply(w, poddapi.Commands{Commands: s.commands.List()})
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) error {
	c, err := s.commands.Get(r.PathValue("id"))
	if err != nil {
		return err
	}
	return reply(w, c.Status())
}

func (s *Server) kill(w http.ResponseWriter, r *http.Request) error {
	c, err := s.commands.Get(r.PathValue("id"))
	if err != nil {
		return err
	}
	wasRunning, err := c.Kill()
	if err != nil {
		return err
	}
	if wasRunning {
		return reply(w, poddapi.Killed{Status: "killed", ID: c.ID()})
	}
	return reply(w, poddapi.KillExited{Status: c.Status(), Word: "exited"})
}

func (s *Server) signal(w http.ResponseWriter, r *http.Request) error {
	var req poddapi.SignalRequest
	c, err := s.commands.Get(r.PathValue("id"))
	if err != nil {
		return err
	}
	if err := body(w, r, &req); err != nil {
		return err
	}
	if err := c.Signal(req.Signal); err != nil {
		return err
	}
	return reply(w, c.Status())
}

func (s *Server) stdin(w http.ResponseWriter, r *http.Request) error {
	c, err := s.commands.Get(r.PathValue("id"))
	if err != nil {
		return err
	}
	if err := c.Input(r.Context(), r.Body, r.URL.Query().Get("eof") == "1"); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) resize(w http.ResponseWriter, r *http.Request) error {
	c, err := s.commands.Get(r.PathValue("id"))
	if err != nil {
		return err
	}
	var size poddapi.Size
	if err := body(w, r, &size); err != nil {
		return err
	}
	if err := c.Resize(size); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// logs gives output from a byte offset on, in one of three forms.
func (s *Server) logs(w http.ResponseWriter, r *http.Request) error {
	c, err := s.commands.Get(r.PathValue("id"))
	if err != nil {
		return err
	}
	q := r.URL.Query()
	cursor, err := number(q.Get("cursor"), "invalid_cursor", "cursor")
	if err != nil {
		return err
	}
	wait, err := number(q.Get("wait_ms"), "invalid_wait", "wait_ms")
	if err != nil {
		return err
	}
	if q.Get("follow") == "1" {
		return s.follow(w, r, c, cursor)
	}
	raw := q.Get("format") == "raw"
	ctx, cancel := context.WithTimeout(r.Context(), min(time.Duration(wait)*time.Millisecond, poddapi.MaxWait))
	defer cancel()
	p, err := excerptOf(ctx, c, cursor, raw)
	if err != nil {
		return err
	}
	if raw {
		h := w.Header()
		h.Set("Content-Type", "application/octet-stream")
		h.Set("Content-Length", strconv.Itoa(len(p.bytes)))
		h.Set("X-Cubepod-Cursor", strconv.FormatInt(p.status.Cursor, 10))
		w.Write(p.bytes)
		return nil
	}
	a := poddapi.Logs{Status: p.status}
	a.Content, a.ContentB64 = text(p.bytes)
	return reply(w, a)
}

// excerpt is a piece of output and the command's status, whose cursor is the
// offset after the piece and which is truncated when bytes before it are gone.
type excerpt struct {
	bytes  []byte
	status poddapi.Status
}

// excerptOf reads from cursor on, and waits for something to read until the
// command is finished or ctx ends. Unless raw, it ends with a whole character.
func excerptOf(ctx context.Context, c *command.Command, cursor int64, raw bool) (excerpt, error) {
	for {
		// The status first: a command that is finished has all its output.
		status := c.Status()
		p, from, err := c.Read(cursor, poddapi.MaxOutput)
		if err != nil {
			return excerpt{}, err
		}
		if from < cursor { // past the end
			cursor = from
		}
		cut := p
		if !raw && (status.Running || int64(len(p)) == poddapi.MaxOutput) {
			cut = p[:whole(p)]
		}
		if len(cut) > 0 || !status.Running || ctx.Err() != nil {
			status.Cursor = from + int64(len(cut))
			status.Truncated = status.Truncated || from > cursor
			return excerpt{cut, status}, nil
		}
		c.Wait(ctx, from+int64(len(p)))
	}
}

// number reads a query parameter that is no negative number; absent is 0.
func number(s, code, name string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, apierror.New(apierror.Invalid, code, "%s must be a number and not negative", name)
	}
	return n, nil
}
