package command

import (
	"bytes"
	"time"

	"github.com/cubeplexai/cubepod/podd/procfs"
)

// endSurvivors kills the processes of commands that ran when an earlier podd
// crashed: nobody takes their output any more, or will know their end. What a
// finished command left in the background lives on.
func (m *Manager) endSurvivors() {
	oldest := m.state.next
	for _, c := range m.commands {
		oldest = min(oldest, c.number)
	}
	// One that is not remembered was running, unless it is so old that it was
	// forgotten.
	ran := func(number uint64) bool {
		c := m.commands[commandID(number)]
		return c == nil && number > oldest || c != nil && c.status.EndedAt == nil
	}
	all, _ := procfs.All() // without /proc there is no way to find them
	var survivors []target
	for _, p := range all {
		env, _ := procfs.Environ(p.PID)
		if number, ok := m.marked(env); ok && ran(number) {
			survivors = append(survivors, target{p.PID, p.Start})
		}
	}
	tree := m.groups.Load()
	if tree == nil {
		killAll(survivors, time.Now().Add(killBound))
		return
	}
	for _, name := range tree.Names() {
		group := tree.Group(name)
		if c := m.commands[name]; c != nil {
			c.group = group
		}
		if number, err := commandNumber(name); err != nil || !ran(number) {
			continue
		}
		for _, pid := range group.PIDs() {
			if p, err := procfs.Read(pid); err == nil {
				survivors = append(survivors, target{p.PID, p.Start})
			}
		}
	}
	killAll(survivors, time.Now().Add(killBound))
	for _, name := range tree.Names() {
		tree.Group(name).Remove()
	}
}

// marked finds a command's number by the marker in an environment.
func (m *Manager) marked(env []byte) (number uint64, ok bool) {
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		value, found := bytes.CutPrefix(entry, []byte(marker+"="))
		id, found2 := bytes.CutSuffix(value, []byte("."+m.state.nonce))
		if found && found2 {
			n, err := commandNumber(string(id))
			return n, err == nil
		}
	}
	return 0, false
}
