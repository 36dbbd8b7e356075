package command

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// What is remembered of finished commands. Running ones always are.
const (
	maxFinished = 1000
	maxLong     = 256 << 20 // bytes of long outputs
	maxAge      = 24 * time.Hour
)

// closed is the done of a command that an earlier podd ran.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// recall reads what an earlier podd remembered.
func (m *Manager) recall() error {
	m.commands, m.keys, m.over = map[string]*Command{}, map[string]*Command{}, nil
	j, err := openJournal(m.state.dir, m.recallOne)
	if err != nil {
		return err
	}
	m.journal = j
	for _, c := range m.commands {
		m.over = append(m.over, c)
		m.long += c.long
		if c.key != "" {
			m.keys[c.key] = c
		}
	}
	slices.SortFunc(m.over, func(a, b *Command) int { return a.over.Compare(b.over) })
	m.forget()
	return m.sweep()
}

func (m *Manager) recallOne(r record, s shelf) {
	number, err := commandNumber(r.ID)
	if err != nil {
		s.segment.refs--
		return
	}
	if old := m.commands[r.ID]; old != nil {
		old.shelf.segment.refs--
	}
	out := newOutput(m.state.output(r.ID))
	out.end, out.long, out.shelf = r.Cursor, r.Long, s
	if r.Lost != nil {
		out.lost = *r.Lost
	}
	if r.Running {
		// It has ended with that podd, nobody knows how; and its ring was
		// written to after this record.
		r.Running = false
		if r.Long && r.Cursor > keptHead {
			out.lost = keptHead
		}
	}
	over := r.StartedAt
	if r.EndedAt != nil {
		over = *r.EndedAt
	}
	m.commands[r.ID] = &Command{
		m: m, number: number, key: r.Key, sum: r.Sum, status: r.Status, out: out,
		done: closed, reaped: true, shelf: s, over: over, long: out.kept(),
	}
}

// sweep removes outputs that no remembered command owns.
func (m *Manager) sweep() error {
	dir := filepath.Join(m.state.dir, "output")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if c := m.commands[e.Name()]; c == nil || !c.out.long {
			os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	return nil
}

// finished takes c, which has just ended, among those that may be forgotten.
func (m *Manager) finished(c *Command) {
	m.active.Add(-1)
	m.keep(c)
	m.mu.Lock()
	defer m.mu.Unlock()
	c.over, c.long = time.Now(), c.out.kept()
	m.long += c.long
	m.over = append(m.over, c)
	if !c.released() {
		m.held[c] = struct{}{}
	}
	m.forget()
}

// keep writes c as it stands into the journal. A short output leaves memory
// once nothing can be added to it.
func (m *Manager) keep(c *Command) {
	c.recording.Lock()
	defer c.recording.Unlock()
	if c.final {
		return
	}
	c.final = c.quiet()
	r := record{Status: c.Status(), Key: c.key, Sum: c.sum}
	data, long, lost := c.out.snapshot()
	if r.Long = long; lost >= 0 {
		r.Lost = &lost
	}
	if !long && lost < 0 {
		r.Cursor = int64(len(data)) // of the same moment
	}
	s, err := m.journal.append(r, data)
	if err != nil {
		m.log.Printf("command %s: write journal: %v", c.status.ID, err)
		if c.final {
			c.out.seal(shelf{})
		}
		return
	}
	c.mu.Lock()
	unneeded := c.shelf
	if c.forgotten {
		unneeded = s
	} else {
		c.shelf = s
	}
	c.mu.Unlock()
	if c.final {
		c.out.seal(s)
	}
	m.journal.drop(unneeded.segment, 1)
}

// forgettable reports whether nothing of the command is left but its memory.
func (c *Command) forgettable() bool { return c.quiet() && c.released() && c.removeGroup() }

// forget gives up what the command has on disk.
func (c *Command) forget() {
	c.mu.Lock()
	old := c.shelf
	c.shelf, c.forgotten = shelf{}, true
	c.mu.Unlock()
	c.out.discard()
	c.m.journal.drop(old.segment, 1)
}

// forget drops the oldest finished commands beyond the bounds. A command that
// has processes left is skipped. m.mu is held.
func (m *Manager) forget() {
	horizon := time.Now().Add(-maxAge)
	var skipped []*Command
	i := 0
	for ; i < len(m.over); i++ {
		c := m.over[i]
		if len(m.over)-i+len(skipped) <= maxFinished && m.long <= maxLong && !c.over.Before(horizon) {
			break
		}
		if !c.forgettable() {
			skipped = append(skipped, c)
			continue
		}
		m.long -= c.long
		delete(m.commands, c.status.ID)
		if m.keys[c.key] == c {
			delete(m.keys, c.key)
		}
		c.forget()
	}
	if m.over = m.over[i:]; len(skipped) > 0 {
		m.over = append(skipped, m.over...)
	}
}

// Sync puts everything that is remembered on the disk, running commands as
// they stand.
func (m *Manager) Sync() error {
	m.mu.Lock()
	all := make([]*Command, 0, len(m.commands))
	for _, c := range m.commands {
		all = append(all, c)
	}
	m.mu.Unlock()
	var errs []error
	for _, c := range all {
		m.keep(c)
		errs = append(errs, c.out.flush())
	}
	return errors.Join(append(errs, m.journal.flush())...)
}

func (m *Manager) closeState() error {
	return errors.Join(m.journal.flush(), m.journal.close(), m.state.close())
}
