package command

import (
	"context"
	"fmt"
	"os"
	"sync"
)

// How much of one command's output is kept. Up to smallOutput bytes stay in
// memory. What is longer goes to a file that keeps the beginning and, in a
// ring behind it, the end: an agent wants both.
const (
	smallOutput = 32 << 10
	keptHead    = 8 << 20
	keptTail    = 8 << 20
)

// output is what a command wrote. The writer never waits for a reader; each
// reader has its own offset. Offsets count from the command's first byte and
// are never renumbered.
type output struct {
	spill string // the file for a long output
	limit int64  // of the bytes kept at all when spill is ""

	mu     sync.Mutex // guards the fields below
	end    int64      // bytes written so far, kept or not
	mem    []byte     // all of it, while it is short
	file   *os.File   // nil before it is long, and again once sealed
	long   bool
	lost   int64 // offset from which nothing could be stored; -1 is none
	err    error // why
	shelf  shelf // where a short output rests once journalled
	notify chan struct{}
}

func newOutput(spill string) *output { return &output{spill: spill, lost: -1} }

// newCapture keeps the first limit bytes, in memory.
func newCapture(limit int64) *output { return &output{limit: limit, lost: -1} }

// Write takes all of p, always: what cannot be kept is counted and dropped.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.lost >= 0:
	case o.long:
		o.store(p, o.end)
	case o.spill == "":
		room := o.limit - int64(len(o.mem))
		o.mem = append(o.mem, p[:min(int64(len(p)), room)]...)
		if int64(len(p)) > room {
			o.lost = o.limit
		}
	case len(o.mem)+len(p) <= smallOutput:
		o.mem = append(o.mem, p...)
	default:
		o.lengthen(p)
	}
	o.end += int64(len(p))
	if o.notify != nil {
		close(o.notify)
		o.notify = nil
	}
	return len(p), nil
}

// lengthen moves a short output to its file and adds p. When the disk does not
// take it, as much as a short output has stays in memory.
func (o *output) lengthen(p []byte) {
	fits := smallOutput - len(o.mem)
	o.mem = append(o.mem, p[:fits]...)
	f, err := spill(o.spill, o.mem)
	if err != nil {
		o.lose(smallOutput, err)
		return
	}
	o.file, o.long, o.mem = f, true, nil
	o.store(p[fits:], smallOutput)
}

// spill makes the file of a long output, which begins with head. It leaves no
// file behind that is not whole.
func spill(name string, head []byte) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteAt(head, 0); err != nil {
		f.Close()
		os.Remove(name)
		return nil, err
	}
	return f, nil
}

// store writes p, which belongs at offset at, into the file.
func (o *output) store(p []byte, at int64) {
	for len(p) > 0 && o.lost < 0 {
		pos, room := at, keptHead-at
		if at >= keptHead {
			slot := (at - keptHead) % keptTail
			pos, room = keptHead+slot, keptTail-slot
		}
		n := min(int64(len(p)), room)
		if wrote, err := o.file.WriteAt(p[:n], pos); err != nil {
			// A ring that was being overwritten is no longer of one piece.
			o.lose(min(at+int64(wrote), keptHead), err)
			return
		}
		p, at = p[n:], at+n
	}
}

func (o *output) lose(from int64, err error) { o.lost, o.err = from, err }

// truncated reports whether bytes in the middle or at the end are gone.
func (o *output) truncated() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.gap()
}

func (o *output) gap() bool { return o.lost >= 0 || o.end > keptHead+keptTail }

func (o *output) size() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.end
}

// read gives at most limit bytes from offset at on, and the offset of the
// first, which is later than at when the bytes in between are gone. Past the
// end there are none, at the end's offset.
func (o *output) read(at, limit int64) (p []byte, from int64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if at >= o.end {
		return nil, o.end, nil
	}
	to := o.end
	switch {
	case o.lost >= 0 && at >= o.lost:
		return nil, o.end, nil
	case o.lost >= 0:
		to = o.lost
	case o.end > keptHead+keptTail && at < keptHead:
		to = keptHead
	case o.end > keptHead+keptTail:
		at = max(at, o.end-keptTail)
	}
	p, err = o.load(at, min(to-at, limit))
	return p, at, err
}

// load reads n kept bytes at offset at.
func (o *output) load(at, n int64) ([]byte, error) {
	if !o.long && o.shelf.segment == nil {
		return append([]byte(nil), o.mem[at:at+n]...), nil
	}
	p := make([]byte, n)
	if !o.long {
		_, err := o.shelf.segment.file.ReadAt(p, o.shelf.at+at)
		return p, err
	}
	f := o.file
	if f == nil {
		var err error
		if f, err = os.Open(o.spill); err != nil {
			return nil, fmt.Errorf("read output: %w", err)
		}
		defer f.Close()
	}
	for rest := p; len(rest) > 0; {
		pos, room := at, keptHead-at
		if at >= keptHead {
			slot := (at - keptHead) % keptTail
			pos, room = keptHead+slot, keptTail-slot
		}
		k := min(int64(len(rest)), room)
		if _, err := f.ReadAt(rest[:k], pos); err != nil {
			return nil, fmt.Errorf("read output: %w", err)
		}
		rest, at = rest[k:], at+k
	}
	return p, nil
}

// wait returns once there is something after offset at, ended is closed, or
// ctx is done.
func (o *output) wait(ctx context.Context, at int64, ended <-chan struct{}) {
	o.mu.Lock()
	if o.end > at {
		o.mu.Unlock()
		return
	}
	if o.notify == nil {
		o.notify = make(chan struct{})
	}
	more := o.notify
	o.mu.Unlock()
	select {
	case <-more:
	case <-ended:
	case <-ctx.Done():
	}
}

// snapshot gives the bytes of a short output, whether it is a long one, and
// from where on it is lost, or -1.
func (o *output) snapshot() (short []byte, long bool, lost int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mem, o.long, o.lost
}

// kept is how much of a long output is on the disk.
func (o *output) kept() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.long {
		return 0
	}
	return min(o.end, keptHead+keptTail)
}

// discard removes a long output's file.
func (o *output) discard() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.long {
		os.Remove(o.spill)
	}
}

// seal says that nothing will be written any more. A short output moves to
// s, where a journal has just put it, and leaves memory.
func (o *output) seal(s shelf) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.file != nil {
		o.file.Close()
		o.file = nil
	}
	if !o.long && s.segment != nil {
		o.shelf, o.mem = s, nil
	}
}

// flush puts what the file holds on the disk.
func (o *output) flush() error {
	o.mu.Lock()
	f := o.file
	o.mu.Unlock()
	if f == nil {
		return nil
	}
	return f.Sync()
}
