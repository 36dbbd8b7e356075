package server

import (
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/podd/files"
)

// path is the file a request is about. Relative ones start in the workdir.
func (s *Server) path(p string) (string, error) {
	if p == "" {
		return "", apierror.New(apierror.Invalid, "invalid_path", "there is no path")
	}
	if filepath.IsAbs(p) {
		return p, nil
	}
	return filepath.Join(s.o.Workdir, p), nil
}

func (s *Server) getFile(w http.ResponseWriter, r *http.Request) error {
	_, path, err := s.target(r)
	if err != nil {
		return err
	}
	f, fi, err := files.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	if fi.Size() == 0 { // the kernel's own files say so and have content all the same
		io.Copy(s.patientWriter(w), f)
		return nil
	}
	http.ServeContent(s.patientWriter(w), r, "", fi.ModTime(), f)
	return nil
}

// target reads what most calls on files begin with: the query, and the path it
// names.
func (s *Server) target(r *http.Request) (url.Values, string, error) {
	q, err := query(r)
	if err != nil {
		return nil, "", err
	}
	path, err := s.path(q.Get("path"))
	return q, path, err
}

func (s *Server) putFile(w http.ResponseWriter, r *http.Request) error {
	q, path, err := s.target(r)
	if err != nil {
		return err
	}
	owner, err := s.owner(q)
	if err != nil {
		return err
	}
	mode, err := mode(q.Get("mode"), 0o644)
	if err != nil {
		return err
	}
	size, err := files.Write(path, owner, mode, s.patientBody(w, r))
	if err != nil {
		return err
	}
	return s.reply(w, poddapi.Written{Path: path, Size: size})
}

func (s *Server) deleteFile(w http.ResponseWriter, r *http.Request) error {
	q, path, err := s.target(r)
	if err != nil {
		return err
	}
	recursive, err := flag(q, "recursive")
	if err != nil {
		return err
	}
	if err := files.Remove(path, recursive); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) listFiles(w http.ResponseWriter, r *http.Request) error {
	_, path, err := s.target(r)
	if err != nil {
		return err
	}
	entries, err := files.List(path)
	if err != nil {
		return err
	}
	return s.reply(w, poddapi.Entries{Entries: entries})
}

func (s *Server) statFile(w http.ResponseWriter, r *http.Request) error {
	_, path, err := s.target(r)
	if err != nil {
		return err
	}
	e, err := files.Stat(path)
	if err != nil {
		return err
	}
	return s.reply(w, e)
}

func (s *Server) mkdir(w http.ResponseWriter, r *http.Request) error {
	var req poddapi.MkdirRequest
	if err := s.body(w, r, &req); err != nil {
		return err
	}
	path, err := s.path(req.Path)
	if err != nil {
		return err
	}
	id, err := s.commands.Identify(req.UID, req.GID)
	if err != nil {
		return err
	}
	mode, err := mode(req.Mode, 0o755)
	if err != nil {
		return err
	}
	e, err := files.Mkdir(path, files.Owner{UID: id.UID, GID: id.GID}, mode)
	if err != nil {
		return err
	}
	return s.reply(w, e)
}

func (s *Server) moveFile(w http.ResponseWriter, r *http.Request) error {
	var req poddapi.MoveRequest
	if err := s.body(w, r, &req); err != nil {
		return err
	}
	from, err := s.path(req.From)
	if err != nil {
		return err
	}
	to, err := s.path(req.To)
	if err != nil {
		return err
	}
	e, err := files.Move(from, to, req.Overwrite)
	if err != nil {
		return err
	}
	return s.reply(w, e)
}

// owner reads uid and gid; see [command.Accounts.Identify] for absent ones.
func (s *Server) owner(q url.Values) (files.Owner, error) {
	var ids [2]*uint32
	for i, name := range []string{"uid", "gid"} {
		if v := q.Get(name); v != "" {
			n, err := strconv.ParseUint(v, 10, 32)
			if err != nil {
				return files.Owner{}, apierror.New(apierror.Invalid, "invalid_user", "%s is no number", name)
			}
			id := uint32(n)
			ids[i] = &id
		}
	}
	id, err := s.commands.Identify(ids[0], ids[1])
	return files.Owner{UID: id.UID, GID: id.GID}, err
}

func mode(s string, absent uint32) (uint32, error) {
	if s == "" {
		return absent, nil
	}
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n > 0o7777 {
		return 0, apierror.New(apierror.Invalid, "invalid_mode", "mode is no octal number up to 7777")
	}
	return uint32(n), nil
}
