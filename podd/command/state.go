package command

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/cubeplexai/cubepod/internal/apierror"
)

// state is podd's directory: a lock, the number of the next command, the
// journal and the long outputs. It also holds the sandbox's nonce, which tells
// this podd's commands from those of another podd on the same kernel.
type state struct {
	dir       string
	lock      *os.File
	temporary bool
	nonce     string

	mu       sync.Mutex // guards the fields below
	next     uint64     // number of the next command
	reserved uint64     // numbers below are ours to give, also after a crash
}

// reserve is how many numbers are written down at a time.
const reserve = 1000

// openState takes the directory dir for this process alone.
func openState(dir string) (*state, error) {
	if err := os.MkdirAll(filepath.Join(dir, "output"), 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errors.New("another podd uses it")
		}
		return nil, err
	}
	s := &state{dir: dir, lock: lock, next: 1}
	if err := s.load(); err != nil {
		lock.Close()
		return nil, err
	}
	return s, nil
}

// openTemporary makes a state that ends with this process.
func openTemporary() (*state, error) {
	dir, err := os.MkdirTemp("", "podd-")
	if err != nil {
		return nil, err
	}
	s, err := openState(dir)
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	s.temporary = true
	return s, nil
}

func (s *state) load() error {
	data, err := os.ReadFile(filepath.Join(s.dir, "next"))
	if errors.Is(err, os.ErrNotExist) {
		var b [8]byte
		rand.Read(b[:]) // never fails, see crypto/rand
		s.nonce = hex.EncodeToString(b[:])
		return s.save(1)
	}
	if err != nil {
		return err
	}
	if _, err := fmt.Sscanf(string(data), "%d %s", &s.next, &s.nonce); err != nil {
		return fmt.Errorf("file %s: %w", filepath.Join(s.dir, "next"), err)
	}
	s.reserved = s.next
	return nil
}

// save writes down that numbers below n may have been given.
func (s *state) save(n uint64) error {
	path := filepath.Join(s.dir, "next")
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%d %s\n", n, s.nonce)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	s.reserved = n
	return nil
}

// number gives a number that was never given before.
func (s *state) number() (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next+reserve/2 >= s.reserved { // early: a full disk is no reason to stop at once
		if err := s.save(s.next + reserve); err != nil && s.next >= s.reserved {
			return 0, apierror.Wrap(err, apierror.NoSpace, "no_space", "podd cannot write down that an id is used")
		}
	}
	n := s.next
	s.next++
	return n, nil
}

func (s *state) output(id string) string { return filepath.Join(s.dir, "output", id) }

// close gives the directory up. Numbers that were reserved but not given are
// given by the next podd.
func (s *state) close() error {
	defer s.lock.Close()
	if s.temporary {
		return os.RemoveAll(s.dir)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.save(s.next)
}
