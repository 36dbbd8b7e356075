package server

import (
	"io"
	"net/http"
	"time"
)

// patience is how long a caller may leave one read or write of a transfer
// waiting, unless options say otherwise. A transfer may take as long as it
// likes while it moves.
const patience = time.Minute

// stride is how much of a file goes out under one deadline.
const stride = 8 << 20

// patientBody is the body of r, which fails when its sender stalls.
func (s *Server) patientBody(w http.ResponseWriter, r *http.Request) io.ReadCloser {
	return &stallReader{r.Body, http.NewResponseController(w), s.o.Patience}
}

type stallReader struct {
	io.ReadCloser
	rc       *http.ResponseController
	patience time.Duration
}

func (s *stallReader) Read(p []byte) (int, error) {
	s.rc.SetReadDeadline(time.Now().Add(s.patience)) // without deadlines it waits
	n, err := s.ReadCloser.Read(p)
	if err == io.EOF {
		// From here on the server itself reads, to see whether the caller is
		// still there. After a stall it must not wait for the rest.
		s.rc.SetReadDeadline(time.Time{})
	}
	return n, err
}

// patientWriter is w, which fails when its reader stalls.
func (s *Server) patientWriter(w http.ResponseWriter) http.ResponseWriter {
	return &stallWriter{w, http.NewResponseController(w), s.o.Patience}
}

type stallWriter struct {
	http.ResponseWriter
	rc       *http.ResponseController
	patience time.Duration
}

func (s *stallWriter) Write(p []byte) (int, error) {
	s.rc.SetWriteDeadline(time.Now().Add(s.patience))
	return s.ResponseWriter.Write(p)
}

// ReadFrom lets the kernel copy a file to the connection, a stride at a time.
func (s *stallWriter) ReadFrom(from io.Reader) (total int64, err error) {
	into, ok := s.ResponseWriter.(io.ReaderFrom)
	if !ok {
		return io.Copy(struct{ io.Writer }{s}, from)
	}
	left := int64(1<<63 - 1)
	if l, ok := from.(*io.LimitedReader); ok { // one layer of it is all that net sees through
		from, left = l.R, l.N
		defer func() { l.N -= total }()
	}
	for left > 0 {
		s.rc.SetWriteDeadline(time.Now().Add(s.patience))
		piece := min(left, stride)
		n, err := into.ReadFrom(&io.LimitedReader{R: from, N: piece})
		total, left = total+n, left-n
		if err != nil || n < piece {
			return total, err
		}
	}
	return total, nil
}

func (s *stallWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }
