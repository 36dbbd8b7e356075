package command

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/cubeplexai/cubepod/internal/poddapi"
)

// The journal remembers commands over a restart of podd. It is a row of
// segment files, each a sequence of records: one line of JSON, the raw bytes
// of a short output, and a newline. A later record of the same command
// replaces the earlier one. A segment goes when no remembered command is in it.

// segmentSize is where a segment ends and the next begins.
const segmentSize = 4 << 20

// record is a command as the journal has it.
type record struct {
	poddapi.Status
	Key   string `json:"key,omitempty"`  // idempotency key
	Sum   string `json:"sum,omitempty"`  // of the request that had the key
	Bytes int    `json:"bytes"`          // of the output that follows
	Long  bool   `json:"long,omitempty"` // the output is in a file of its own
	Lost  *int64 `json:"lost,omitempty"` // output.lost, when set
}

type segment struct {
	file *os.File
	size int64
	refs int // remembered commands whose latest record is here
}

// shelf is the place of a command's latest record and of its output's first
// byte.
type shelf struct {
	segment *segment
	at      int64
}

type journal struct {
	dir string

	mu      sync.Mutex // guards the fields below
	current *segment
	next    int // number of the next segment
}

func (j *journal) name(n int) string { return filepath.Join(j.dir, fmt.Sprintf("journal-%08d", n)) }

// openJournal reads the journal in dir and hands every record to each, oldest
// first; each takes one from the refs of a segment whose record it gives up.
// A record that a crash cut short ends its segment.
func openJournal(dir string, each func(record, shelf)) (*journal, error) {
	j := &journal{dir: dir}
	names, err := filepath.Glob(filepath.Join(dir, "journal-*"))
	if err != nil {
		return nil, err
	}
	var segments []*segment
	for _, name := range names {
		var n int
		if _, err := fmt.Sscanf(filepath.Base(name), "journal-%08d", &n); err != nil {
			continue
		}
		j.next = max(j.next, n+1)
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		s := &segment{file: f}
		if err := s.replay(each); err != nil {
			return nil, fmt.Errorf("journal %s: %w", name, err)
		}
		segments = append(segments, s)
	}
	for _, s := range segments {
		j.drop(s, 0)
	}
	return j, nil
}

func (s *segment) replay(each func(record, shelf)) error {
	br := bufio.NewReader(s.file)
	for {
		line, err := br.ReadBytes('\n')
		if err != nil {
			return eofIsFine(err)
		}
		var r record
		if json.Unmarshal(line, &r) != nil || r.Bytes < 0 {
			return nil
		}
		at := s.size + int64(len(line))
		if _, err := br.Discard(r.Bytes + 1); err != nil {
			return eofIsFine(err)
		}
		s.size = at + int64(r.Bytes) + 1
		s.refs++
		each(r, shelf{s, at})
	}
}

func eofIsFine(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// append writes r and output and returns where they are; the caller drops
// that when the command is forgotten or recorded anew. The bytes are in the
// kernel then, not on the disk.
func (j *journal) append(r record, output []byte) (shelf, error) {
	r.Bytes = len(output)
	var b bytes.Buffer
	b.Grow(len(output) + 512)
	if err := json.NewEncoder(&b).Encode(r); err != nil {
		return shelf{}, err
	}
	head := int64(b.Len())
	b.Write(output)
	b.WriteByte('\n')

	j.mu.Lock()
	defer j.mu.Unlock()
	if j.current == nil || j.current.size >= segmentSize {
		f, err := os.OpenFile(j.name(j.next), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return shelf{}, err
		}
		old := j.current
		j.current = &segment{file: f}
		j.next++
		if old != nil {
			j.dropLocked(old, 0)
		}
	}
	s := j.current
	// WriteAt, so that a record that did not fit is overwritten by the next.
	if _, err := s.file.WriteAt(b.Bytes(), s.size); err != nil {
		return shelf{}, err
	}
	at := s.size + head
	s.size += int64(b.Len())
	s.refs++
	return shelf{s, at}, nil
}

// drop gives up n references to s and removes it when nobody needs it.
func (j *journal) drop(s *segment, n int) {
	if s == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.dropLocked(s, n)
}

func (j *journal) dropLocked(s *segment, n int) {
	if s.refs -= n; s.refs == 0 && s != j.current {
		os.Remove(s.file.Name())
		s.file.Close()
	}
}

// flush puts the current segment on the disk.
func (j *journal) flush() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.current == nil {
		return nil
	}
	return j.current.file.Sync()
}

// close ends the current segment. Earlier ones stay open for readers that are
// still on their way; the process is about to end.
func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.current == nil {
		return nil
	}
	err := j.current.file.Close()
	j.current = nil
	return err
}
