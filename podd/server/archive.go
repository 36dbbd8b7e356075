package server

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/podd/files"
	"github.com/klauspost/compress/zstd"
)

// window bounds the memory of a zstd stream in either direction.
const window = 8 << 20

func (s *Server) getArchive(w http.ResponseWriter, r *http.Request) error {
	_, path, err := s.target(r)
	if err != nil {
		return err
	}
	coding := preferred(r.Header.Get("Accept-Encoding"))
	out, err := encoder(s.patientWriter(w), coding)
	if err != nil {
		return err
	}
	began := false
	err = files.Pack(path, out, func() {
		began = true
		h := w.Header()
		h.Set("Content-Type", "application/x-tar")
		h.Set("Vary", "Accept-Encoding")
		if coding != "" {
			h.Set("Content-Encoding", coding)
		}
	})
	if err != nil && !began {
		return err
	}
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		if r.Context().Err() == nil {
			s.o.Log.Printf("archive: %v", err)
		}
		panic(http.ErrAbortHandler) // the caller must not take it for a whole one
	}
	return nil
}

func (s *Server) putArchive(w http.ResponseWriter, r *http.Request) error {
	q, path, err := s.target(r)
	if err != nil {
		return err
	}
	owner, err := s.owner(q)
	if err != nil {
		return err
	}
	in, err := decoder(r, s.patientBody(w, r))
	if err != nil {
		return err
	}
	defer in.Close()
	n, bytes, err := files.Unpack(path, owner, in)
	if err != nil {
		return err
	}
	return s.reply(w, poddapi.Extracted{Path: path, Files: n, Bytes: bytes})
}

// preferred chooses among the codings a caller accepts.
func preferred(accept string) string {
	offered := map[string]bool{}
	for item := range strings.SplitSeq(accept, ",") {
		name, q, _ := strings.Cut(strings.TrimSpace(item), ";")
		q = strings.ReplaceAll(q, " ", "")
		offered[strings.ToLower(strings.TrimSpace(name))] = q != "q=0" && !strings.HasPrefix(q, "q=0.000")
	}
	for _, c := range []string{"zstd", "gzip"} {
		if offered[c] {
			return c
		}
	}
	return ""
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func encoder(w io.Writer, coding string) (io.WriteCloser, error) {
	switch coding {
	case "zstd":
		return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(window), zstd.WithEncoderLevel(zstd.SpeedFastest))
	case "gzip":
		return gzip.NewWriterLevel(w, gzip.BestSpeed)
	}
	return nopCloser{w}, nil
}

func decoder(r *http.Request, body io.ReadCloser) (io.ReadCloser, error) {
	switch coding := r.Header.Get("Content-Encoding"); coding {
	case "", "identity":
		return io.NopCloser(body), nil
	case "gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, apierror.Wrap(err, apierror.Invalid, "invalid_archive", "the body is not gzip")
		}
		return z, nil
	case "zstd":
		z, err := zstd.NewReader(body, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(window))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	default:
		return nil, apierror.New(apierror.UnsupportedMedia, "", "podd does not know the coding %q", coding)
	}
}
