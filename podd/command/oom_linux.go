package command

import (
	"fmt"
	"os"
	"strconv"
	"sync"
)

// shieldScores make podd the last that the kernel kills for want of memory, or
// at least not the first. Not -1000: something must be left to kill.
var shieldScores = []int{-900, 0}

// shield keeps podd from being killed for want of memory, but not its
// commands: a process starts with its parent's score, so podd has its usual
// one while it forks. nil is no shield.
type shield struct {
	file        *os.File
	usual, high string // scores, the latter podd's own

	mu    sync.Mutex // guards the field below, and orders the writes
	forks int        // under way
}

// newShield returns nil where podd may not lower its score.
func newShield() *shield {
	f, err := os.OpenFile("/proc/self/oom_score_adj", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	var usual int
	if _, err := fmt.Fscan(f, &usual); err == nil {
		for _, score := range shieldScores {
			s := &shield{file: f, usual: strconv.Itoa(usual), high: strconv.Itoa(score)}
			if score < usual && s.set(s.high) == nil {
				return s
			}
		}
	}
	f.Close()
	return nil
}

func (s *shield) set(score string) error {
	_, err := s.file.WriteAt([]byte(score), 0)
	return err
}

// lower and raise surround a fork.
func (s *shield) lower() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forks++; s.forks == 1 {
		s.set(s.usual) // raising the score is never refused
	}
}

func (s *shield) raise() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forks--; s.forks == 0 {
		s.set(s.high) // it was allowed at the start
	}
}

// close gives podd its usual score back.
func (s *shield) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(s.usual)
	s.file.Close()
}
