// Package command runs commands in the sandbox and remembers them: their
// output, their end, and their whole process tree until it is gone.
package command

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/podd/cgroup"
	"golang.org/x/sys/unix"
)

// Options of a Manager. Zero fields take their defaults.
type Options struct {
	// StateDir is where ids and finished commands outlive podd. A directory
	// that cannot be used is replaced by a private temporary one.
	StateDir string
	// Workdir is where commands run that name no other directory; "/".
	Workdir string
	// Accounts are the sandbox's users; those of /etc.
	Accounts *Accounts
	// NoGroups leaves control groups alone also where podd may make some.
	NoGroups bool
	// Shield makes this process the last that the kernel kills for want of
	// memory, where it may.
	Shield bool
	Log    *log.Logger
}

// Manager owns every command of a sandbox. It is safe for concurrent use.
type Manager struct {
	workdir  string
	accounts *Accounts
	log      *log.Logger
	root     bool
	null     int // /dev/null, shared by all that read no input
	state    *state
	journal  *journal
	shield   *shield
	groups   atomic.Pointer[cgroup.Tree] // nil where there are none
	active   atomic.Int64
	total    atomic.Int64
	life     context.Context // ends with Close
	end      context.CancelFunc
	tenders  sync.WaitGroup

	gate     sync.RWMutex // held for reading while a command is started; guards stopping
	stopping bool

	keyed sync.Mutex // held while a command with an idempotency key is found or started

	mu       sync.Mutex // guards the fields below
	commands map[string]*Command
	keys     map[string]*Command
	over     []*Command            // finished ones, oldest first
	long     int64                 // sum of their Command.long
	held     map[*Command]struct{} // finished ones whose leader is not reaped
	oomSeen  int64
}

// Open returns a Manager that remembers what an earlier one left in the state
// directory. Close ends it.
func Open(o Options) (*Manager, error) {
	if o.Log == nil {
		o.Log = log.Default()
	}
	if o.Accounts == nil {
		o.Accounts = NewAccounts("/etc/passwd", "/etc/group")
	}
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/null: %w", err)
	}
	m := &Manager{
		workdir: cmp.Or(o.Workdir, "/"), accounts: o.Accounts, log: o.Log, root: unix.Geteuid() == 0, null: null,
		commands: map[string]*Command{}, keys: map[string]*Command{}, held: map[*Command]struct{}{}, oomSeen: cgroup.OOMKills(),
	}
	if err := m.openState(o.StateDir); err != nil {
		unix.Close(null)
		return nil, err
	}
	if !o.NoGroups && m.root {
		// Without them the processes themselves tell what they belong to.
		if t, err := cgroup.Open("podd-" + m.state.nonce); err == nil {
			m.groups.Store(t)
		}
	}
	m.endSurvivors()
	if o.Shield {
		m.shield = newShield()
	}
	m.life, m.end = context.WithCancel(context.Background())
	return m, nil
}

func (m *Manager) openState(dir string) error {
	err := m.tryState(openState(dir))
	if err == nil {
		return nil
	}
	m.log.Printf("state directory %s: %v; finished commands will be forgotten when podd ends", dir, err)
	if err := m.tryState(openTemporary()); err != nil {
		return fmt.Errorf("temporary state directory: %w", err)
	}
	return nil
}

func (m *Manager) tryState(s *state, err error) error {
	if err != nil {
		return err
	}
	m.state = s
	if err := m.recall(); err != nil {
		s.lock.Close()
		return err
	}
	return nil
}

// Run starts the command that r describes, or finds the one that its
// idempotency key has started before. The status is the command's as it
// started, or as it stands when it was found.
func (m *Manager) Run(r poddapi.RunRequest) (*Command, poddapi.Status, error) {
	if r.IdempotencyKey == "" {
		return m.start(r, "")
	}
	sum := sumOf(r)
	m.keyed.Lock()
	defer m.keyed.Unlock()
	m.mu.Lock()
	c := m.keys[r.IdempotencyKey]
	m.mu.Unlock()
	switch {
	case c == nil:
		return m.start(r, sum)
	case c.sum != sum:
		return nil, poddapi.Status{}, apierror.New(apierror.Conflict, "idempotency_mismatch", "that idempotency_key belongs to another request")
	}
	return c, c.Status(), nil
}

func (m *Manager) start(r poddapi.RunRequest, sum string) (*Command, poddapi.Status, error) {
	id, err := m.identify(r)
	if err != nil {
		return nil, poddapi.Status{}, err
	}
	if err := check(r); err != nil {
		return nil, poddapi.Status{}, err
	}
	m.gate.RLock()
	defer m.gate.RUnlock()
	if m.stopping {
		return nil, poddapi.Status{}, apierror.New(apierror.Unavailable, "stopping", "the sandbox is about to stop and starts no commands")
	}
	number, err := m.state.number()
	if err != nil {
		return nil, poddapi.Status{}, err
	}
	c := &Command{
		m: m, number: number, key: r.IdempotencyKey, sum: sum, done: make(chan struct{}),
		status: poddapi.Status{ID: commandID(number), Running: true, UID: id.UID, GID: id.GID},
	}
	c.out = newOutput(m.state.output(c.status.ID))
	if r.Separate {
		limit := outputLimit(r)
		c.stdout, c.stderr = newCapture(limit), newCapture(limit)
	}
	env, err := environ(id, c.mark(), r.PTY != nil, r.Envs)
	if err != nil {
		return nil, poddapi.Status{}, err
	}
	dir := m.workdir
	if r.Workdir != "" {
		dir = r.Workdir
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(m.workdir, dir)
		}
	}
	c.status.StartedAt = time.Now().UTC()
	c.group = m.newGroup(c.status.ID)
	ch, err := m.spawn(r, dir, id, env, c)
	if err != nil {
		c.removeGroup()
		return nil, poddapi.Status{}, err
	}
	c.status.PID, c.pumps, c.stdin = ch.pid, ch.pumps, ch.stdin
	started := c.status
	m.register(c)
	m.watch(c, ch.pidfd)
	if r.Stdin != nil || r.StdinOpen {
		m.feed(c, r)
	}
	c.mu.Lock()
	if r.TimeoutMS > 0 && c.status.Running {
		c.timer = time.AfterFunc(time.Duration(r.TimeoutMS)*time.Millisecond, c.expire)
	}
	c.mu.Unlock()
	if r.Background {
		m.keep(c) // it may well outlive this podd
	}
	return c, started, nil
}

func commandID(number uint64) string { return "proc-" + strconv.FormatUint(number, 10) }

func commandNumber(id string) (uint64, error) {
	return strconv.ParseUint(strings.TrimPrefix(id, "proc-"), 10, 64)
}

func (c *Command) mark() string { return c.status.ID + "." + c.m.state.nonce }

func (m *Manager) register(c *Command) {
	m.active.Add(1)
	m.total.Add(1)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.commands[c.status.ID] = c
	if c.key != "" {
		m.keys[c.key] = c
	}
}

func (m *Manager) watch(c *Command, pidfd int) {
	for _, p := range c.pumps {
		m.tenders.Go(p.run)
	}
	m.tenders.Go(func() { c.tend(pidfd) })
}

// feed writes the stdin of r. It ends with the command's stdin or the manager.
func (m *Manager) feed(c *Command, r poddapi.RunRequest) {
	eof := !r.StdinOpen && r.PTY == nil
	text := ""
	if r.Stdin != nil {
		text = *r.Stdin
	}
	if text == "" && eof {
		c.stdin.close()
		return
	}
	m.tenders.Go(func() { c.stdin.copy(m.life, strings.NewReader(text), eof) })
}

// Get finds a command that is still remembered.
func (m *Manager) Get(id string) (*Command, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.commands[id]; c != nil {
		return c, nil
	}
	return nil, apierror.New(apierror.NotFound, "command_not_found", "no command %q", id)
}

// List gives every command that is remembered, oldest first.
func (m *Manager) List() []poddapi.Status {
	m.mu.Lock()
	all := make([]*Command, 0, len(m.commands))
	for _, c := range m.commands {
		all = append(all, c)
	}
	m.mu.Unlock()
	slices.SortFunc(all, func(a, b *Command) int { return cmp.Compare(a.number, b.number) })
	list := make([]poddapi.Status, len(all))
	for i, c := range all {
		list[i] = c.Status()
	}
	return list
}

// Active is the number of commands that run.
func (m *Manager) Active() int { return int(m.active.Load()) }

// Started is the number of commands this podd has started.
func (m *Manager) Started() int64 { return m.total.Load() }

// Identify settles who is meant by a request's numbers; see
// [Accounts.Identify].
func (m *Manager) Identify(uid, gid *uint32) (Identity, error) {
	return m.accounts.Identify("", uid, gid)
}

// Hold refuses new commands until Release. When it returns, none is being
// started.
func (m *Manager) Hold() { m.setStopping(true) }

// Release undoes Hold.
func (m *Manager) Release() { m.setStopping(false) }

func (m *Manager) setStopping(stopping bool) {
	m.gate.Lock()
	m.stopping = stopping
	m.gate.Unlock()
}

// Stopping reports whether new commands are refused.
func (m *Manager) Stopping() bool {
	m.gate.RLock()
	defer m.gate.RUnlock()
	return m.stopping
}

// OrphanReaped tells the manager that a child of podd that it did not start
// has ended: a session may be empty now.
func (m *Manager) OrphanReaped() { m.releaseHeld() }

func (m *Manager) releaseHeld() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.held {
		if c.release() {
			delete(m.held, c)
		}
	}
}

// oomRose reports whether the kernel has killed for want of memory since it
// was last asked.
func (m *Manager) oomRose() bool {
	now := cgroup.OOMKills()
	m.mu.Lock()
	defer m.mu.Unlock()
	rose := now > m.oomSeen
	m.oomSeen = now
	return rose
}

// closeGrace is how long Close lets commands end by themselves.
const closeGrace = 2 * time.Second

// Close ends every command, first gently, and waits for all that the manager
// started. Finished commands stay in the state directory.
func (m *Manager) Close() error {
	m.Hold()
	m.mu.Lock()
	all := make([]*Command, 0, len(m.commands))
	for _, c := range m.commands {
		all = append(all, c)
	}
	m.mu.Unlock()
	for _, c := range all {
		if c.Running() {
			c.signal(syscall.SIGTERM)
			c.signal(syscall.SIGCONT) // a stopped one would not notice
		}
	}
	grace, cancel := context.WithTimeout(m.life, closeGrace)
	defer cancel()
	for _, c := range all {
		select {
		case <-c.done:
		case <-grace.Done():
		}
	}
	for _, c := range all {
		if !c.released() {
			c.Kill()
		}
		for _, p := range c.pumps {
			p.stop()
		}
	}
	m.end()
	m.tenders.Wait()
	if t := m.groups.Load(); t != nil {
		t.Close()
	}
	m.shield.close()
	unix.Close(m.null)
	return m.closeState()
}
