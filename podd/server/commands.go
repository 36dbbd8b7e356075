package server

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/podd/command"
	"github.com/cubeplexai/cubepod/podd/text"
)

// run answers when the command is finished, or at once for a background one.
// The command does not depend on the caller's staying.
func (s *Server) run(w http.ResponseWriter, r *http.Request) error {
	var req poddapi.RunRequest
	if err := s.body(w, r, &req); err != nil {
		return err
	}
	done := hurry()
	c, started, err := s.commands.Run(req)
	if req.Background {
		defer done()
	} else {
		done()
	}
	if err != nil {
		return err
	}
	if req.Background {
		return s.reply(w, poddapi.RunResponse{Status: started})
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
		out = out[:text.Whole(out)]
		status.Truncated = true
	}
	status.Cursor = int64(len(out))
	a := poddapi.RunResponse{Status: status}
	a.Output, a.OutputB64 = text.Encode(out)
	if stdout, stderr, ok := c.Separate(limit); ok {
		var one, two string
		one, a.StdoutB64 = text.Encode(head(stdout, limit))
		two, a.StderrB64 = text.Encode(head(stderr, limit))
		a.Stdout, a.Stderr = &one, &two
	}
	return s.reply(w, a)
}

// head is a stream's beginning, which may have been cut at limit.
func head(p []byte, limit int64) []byte {
	if int64(len(p)) == limit {
		return p[:text.Whole(p)]
	}
	return p
}

func (s *Server) listCommands(w http.ResponseWriter, _ *http.Request) error {
	return s.reply(w, poddapi.Commands{Commands: s.commands.List()})
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) error {
	c, err := s.commands.Get(r.PathValue("id"))
	if err != nil {
		return err
	}
	return s.reply(w, c.Status())
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
		return s.reply(w, poddapi.Killed{Status: "killed", ID: c.ID()})
	}
	return s.reply(w, poddapi.KillExited{Status: c.Status(), Word: "exited"})
}

func (s *Server) signal(w http.ResponseWriter, r *http.Request) error {
	var req poddapi.SignalRequest
	c, err := s.commands.Get(r.PathValue("id"))
	if err != nil {
		return err
	}
	if err := s.body(w, r, &req); err != nil {
		return err
	}
	if err := c.Signal(req.Signal); err != nil {
		return err
	}
	return s.reply(w, c.Status())
}

func (s *Server) stdin(w http.ResponseWriter, r *http.Request) error {
	c, err := s.commands.Get(r.PathValue("id"))
	if err != nil {
		return err
	}
	q, err := query(r)
	if err != nil {
		return err
	}
	eof, err := flag(q, "eof")
	if err != nil {
		return err
	}
	if err := c.Input(r.Context(), r.Body, eof); err != nil {
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
	if err := s.body(w, r, &size); err != nil {
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
	q, err := query(r)
	if err != nil {
		return err
	}
	cursor, err := number(q.Get("cursor"), "invalid_cursor", "cursor")
	if err != nil {
		return err
	}
	wait, err := number(q.Get("wait_ms"), "invalid_wait", "wait_ms")
	if err != nil {
		return err
	}
	follow, err := flag(q, "follow")
	if err != nil {
		return err
	}
	format := q.Get("format")
	raw := format == "raw"
	switch {
	case format != "" && format != "json" && !raw:
		return apierror.New(apierror.Invalid, "invalid_format", "format is json or raw")
	case follow && raw:
		return apierror.New(apierror.Invalid, "invalid_format", "events carry no raw bytes")
	case follow:
		return s.follow(w, r, c, cursor)
	}
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
		s.patientWriter(w).Write(p.bytes)
		return nil
	}
	a := poddapi.Logs{Status: p.status}
	a.Content, a.ContentB64 = p.text()
	return s.reply(w, a)
}
