package command

import (
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// pump carries what a command writes from a pipe or a terminal into its
// output. It reads as long as any process holds the other end, so a command's
// stragglers never block, and no reader of the output can make it wait.
type pump struct {
	file  *os.File // non-blocking
	fd    int
	to    io.Writer // never fails
	ended chan struct{}

	mu  sync.Mutex // orders the reads of run and drain; guards the field below
	eof bool
}

var chunks = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// newPump takes over fd, which is non-blocking.
func newPump(fd int, to io.Writer) *pump {
	return &pump{file: os.NewFile(uintptr(fd), "output"), fd: fd, to: to, ended: make(chan struct{})}
}

// run reads until the last writer is gone or the pump is closed.
func (p *pump) run() {
	defer close(p.ended)
	defer p.file.Close()
	if conn, err := p.file.SyscallConn(); err == nil {
		conn.Read(func(uintptr) bool { return p.read(-1) })
	}
	p.mu.Lock()
	p.eof = true
	p.mu.Unlock()
}

// drain reads what is waiting now. Called when a process has ended, it gets
// every byte that process wrote, and it is done even while another writes on.
func (p *pump) drain() (eof bool) {
	p.mu.Lock()
	if p.eof {
		p.mu.Unlock()
		return true
	}
	waiting, err := unix.IoctlGetInt(p.fd, unix.TIOCINQ)
	p.mu.Unlock()
	if err != nil || waiting == 0 {
		// A terminal moves its bytes on only when it is read: try it. What it
		// can hold back is bounded.
		waiting = 128 << 10
	}
	return p.read(waiting + 1) // one more, to see the end
}

// read reads until there is nothing to read or limit bytes are done, and
// reports whether nothing will come any more. A negative limit is none.
func (p *pump) read(limit int) (eof bool) {
	buf := chunks.Get().(*[64 << 10]byte)
	defer chunks.Put(buf)
	for limit != 0 {
		n, more := p.readOnce(buf[:])
		if !more {
			break
		}
		if limit > 0 {
			limit = max(0, limit-n)
		}
	}
	return p.over()
}

// over reports whether nothing will be written to the output any more.
func (p *pump) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.eof
}

func (p *pump) readOnce(buf []byte) (n int, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.eof {
		return 0, false
	}
	n, err := unix.Read(p.fd, buf)
	switch {
	case n > 0:
		p.to.Write(buf[:n])
		return n, true
	case err == unix.EINTR:
		return 0, true
	case err == unix.EAGAIN:
		return 0, false
	}
	p.eof = true // the end, or a terminal's EIO
	return 0, false
}

// stop ends the pump although somebody may still write.
func (p *pump) stop() {
	p.mu.Lock()
	p.eof = true // nobody touches fd after that
	p.mu.Unlock()
	p.file.Close()
}
