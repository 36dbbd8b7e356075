package files

import (
	"crypto/rand"
	"io"
	"os"
	"sync"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"golang.org/x/sys/unix"
)

// Write replaces the file at path by what r gives, at once and as a whole: a
// reader sees the old file or the new one. When r fails, nothing has changed.
func Write(path string, owner Owner, mode uint32, r io.Reader) (size int64, err error) {
	dir, base, err := openParent(path, &owner)
	if err != nil {
		return 0, public(err, path)
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return 0, public(unix.EISDIR, path) // known before the upload is read
	}
	name := temporary()
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return 0, public(err, path)
	}
	f := os.NewFile(uintptr(fd), path)
	defer func() {
		if err != nil {
			f.Close()
			unix.Unlinkat(dir, name, 0)
		}
	}()
	from := &source{r: r}
	buf := buffers.Get().(*[bufferSize]byte)
	size, err = io.CopyBuffer(struct{ io.Writer }{f}, from, buf[:])
	buffers.Put(buf)
	if err != nil {
		if from.err != nil {
			return 0, from.err
		}
		return 0, public(err, path)
	}
	err = finish(f, owner, mode)
	if err == nil {
		err = unix.Renameat(dir, name, dir, base)
	}
	if err != nil {
		return 0, public(err, path)
	}
	return size, nil
}

// bufferSize is what is read from a caller at a time. It is large: each piece
// costs a look at the connection's deadline and a system call or two.
const bufferSize = 512 << 10

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// source keeps apart the errors of an upload and those of the disk.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = apierror.Wrap(err, apierror.Invalid, "body_incomplete", "the body broke off")
	}
	return n, err
}

// temporary is a name for a file that is not there yet.
func temporary() string { return ".podd-" + rand.Text() }
