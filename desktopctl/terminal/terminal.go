// Package terminal is the guest's port 7681: one shell for the sandbox, and
// the page that shows it.
//
// The shell outlives its viewers. Whoever joins sees what it printed lately
// and then what it prints; all may type. Its size is that of the viewer who
// last typed or changed size, so a second viewer who only looks disturbs
// nobody. When the shell exits, the next key or the next viewer starts another.
//
// # Protocol
//
// The WebSocket at /ws speaks as ttyd does (subprotocol "tty"), so that one
// parser at the edge fits both. A message is a type and its data:
//
//	client  '{' … the whole message is JSON: {"AuthToken":"","columns":80,"rows":24}; comes first
//	        '0' input
//	        '1' {"columns":80,"rows":24}
//	        '2' stop sending, '3' go on
//	server  '0' output
//	        '1' title
//	        '2' {} (settings; there are none)
//
// # Pace
//
// Output is kept once, in a ring, where each viewer reads at its own pace.
// The shell waits for those who are a whole ring behind: a lone viewer on a slow
// line sees all of a long listing. A viewer whom others wait for is dropped
// after a second, and so is one who takes nothing at all; the page joins anew.
package terminal

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/creack/pty"

	"github.com/cubeplexai/cubepod/desktopctl/web"
)

// Subprotocol is echoed to clients that offer it.
const Subprotocol = "tty"

// maxLag is how long one viewer may hold up the shell for the others.
const maxLag = time.Second

// DefaultScrollback is how much output a viewer who joins is shown.
const DefaultScrollback = 256 << 10

// Options are what a Terminal needs. Zero fields take the defaults.
type Options struct {
	// WebDir holds the built page: index.html, terminal.js, terminal.css.
	WebDir string
	// Command is the shell; default is bash, interactive and no login shell,
	// which reads ~/.bashrc and EnvFile.
	Command []string
	// Dir is where the shell starts, if it can be entered; default is
	// /workspace. HOME is next, then the root.
	Dir string
	// Env is the shell's environment; default is this process's own. TERM and
	// LANG are set in any case.
	Env []string
	// EnvFile is read by each new shell; default is the constant [EnvFile].
	EnvFile string
	// Scrollback is how many bytes of output are kept; default is
	// [DefaultScrollback].
	Scrollback int
	// Heartbeat is how often a viewer is pinged; default is [web.Heartbeat].
	Heartbeat time.Duration
}

// Terminal is the handler of port 7681. It guards nothing by itself: wrap it
// in loopback.Guard.
type Terminal struct {
	opts Options
	mux  *http.ServeMux

	life context.Context // ends with Close
	end  context.CancelFunc
	work sync.WaitGroup // viewers and the shell

	mu      sync.Mutex // guards the fields below
	changed sync.Cond  // on mu: output, a viewer's position or number, the end
	closed  bool
	shell   *shell // nil when none runs
	output  *scrollback
	viewers []*viewer // the one who last typed or resized is last
}

// New returns a Terminal whose shell starts with its first viewer. Close ends
// both.
func New(opts Options) *Terminal {
	if opts.Dir == "" {
		opts.Dir = "/workspace"
	}
	if opts.Env == nil {
		opts.Env = os.Environ()
	}
	if opts.EnvFile == "" {
		opts.EnvFile = EnvFile
	}
	if opts.Scrollback == 0 {
		opts.Scrollback = DefaultScrollback
	}
	if opts.Heartbeat == 0 {
		opts.Heartbeat = web.Heartbeat
	}
	t := &Terminal{opts: opts, mux: http.NewServeMux(), output: newScrollback(opts.Scrollback)}
	t.changed.L = &t.mu
	t.life, t.end = context.WithCancel(context.Background())
	t.mux.HandleFunc("GET /ws", t.serveSocket)
	t.mux.HandleFunc("GET /token", serveToken)
	t.mux.Handle("/", web.Pages(opts.WebDir, "/{$}"))
	return t
}

// ServeHTTP answers one request; for a viewer's WebSocket it returns when that
// ends.
func (t *Terminal) ServeHTTP(w http.ResponseWriter, r *http.Request) { t.mux.ServeHTTP(w, r) }

// Close says goodbye to every viewer, hangs up on the shell and waits for all.
func (t *Terminal) Close() error {
	t.mu.Lock()
	t.closed = true
	t.changed.Broadcast()
	t.mu.Unlock()
	t.end()
	t.work.Wait()
	return nil
}

// serveToken answers what ttyd's own page asks before it connects.
func serveToken(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(map[string]string{"token": ""})
}

// begin counts a viewer that Close has to wait for, unless Close was called.
func (t *Terminal) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.work.Add(1)
	return true
}

// join gives v the terminal as it stands, and starts the shell if none runs.
func (t *Terminal) join(v *viewer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	v.replay, v.offset = t.output.replay(), t.output.end
	if len(t.viewers) == 0 {
		t.viewers = append(t.viewers, v)
		t.applySize()
	} else {
		t.viewers = append([]*viewer{v}, t.viewers...)
	}
	if err := t.needShell(); err != nil {
		return err
	}
	if t.output.start() > 0 {
		t.shell.redraw() // a full-screen program's picture may be incomplete
	}
	return nil
}

func (t *Terminal) leave(v *viewer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(v)
	t.changed.Broadcast()
}

// remove forgets v; its size counts no more.
func (t *Terminal) remove(v *viewer) {
	if i := slices.Index(t.viewers, v); i >= 0 {
		t.viewers = slices.Delete(t.viewers, i, i+1)
		t.applySize()
	}
}

// size is that of the viewer whose size counts, or of a terminal nobody sees.
func (t *Terminal) size() *pty.Winsize {
	if n := len(t.viewers); n > 0 {
		return &t.viewers[n-1].size
	}
	return &defaultSize
}

var defaultSize = pty.Winsize{Cols: 80, Rows: 24}

// applySize makes the shell's size that of the viewer it belongs to. With
// nobody there it stays.
func (t *Terminal) applySize() {
	if t.shell != nil && len(t.viewers) > 0 {
		t.shell.resize(t.size())
	}
}

// isActive says whether v is the one who last typed or changed size.
func (t *Terminal) isActive(v *viewer) bool {
	return len(t.viewers) > 0 && t.viewers[len(t.viewers)-1] == v
}

// activate makes v's size count.
func (t *Terminal) activate(v *viewer) {
	if i := slices.Index(t.viewers, v); i >= 0 && !t.isActive(v) {
		t.viewers = append(slices.Delete(t.viewers, i, i+1), v)
		t.applySize()
	}
}

func (t *Terminal) resize(v *viewer, size pty.Winsize) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v.size = size
	t.activate(v)
	t.applySize()
}

// typed hands v's input to the shell, waiting while that does not read.
func (t *Terminal) typed(ctx context.Context, v *viewer, input []byte) error {
	for {
		t.mu.Lock()
		if isAnswer(input) && !t.isActive(v) {
			t.mu.Unlock()
			return nil // each viewer's terminal answers a program's question; one answer is enough
		}
		t.activate(v)
		err := t.needShell()
		sh := t.shell
		t.mu.Unlock()
		if err != nil {
			return err
		}
		if sh.send(ctx, input) {
			return nil
		}
		select {
		case <-sh.gone:
		case <-ctx.Done():
			return nil
		}
	}
}

// needShell starts a shell if none runs. The caller holds mu.
func (t *Terminal) needShell() error {
	if t.shell != nil {
		return nil
	}
	if t.closed {
		return errStopping
	}
	cmd, err := t.opts.command()
	if err != nil {
		return err
	}
	sh, err := startShell(cmd, t.size())
	for _, f := range cmd.ExtraFiles {
		f.Close()
	}
	if err != nil {
		return fmt.Errorf("start the shell: %w", err)
	}
	t.shell = sh
	t.work.Go(func() { t.runShell(sh) })
	return nil
}

func (t *Terminal) runShell(sh *shell) {
	sh.run(t.life, t.print)
	notice := fmt.Sprintf("%s\r\n\x1b[2m[the shell %s; press a key for a new one]\x1b[0m\r\n", softReset, sh.status())
	t.print([]byte(notice))
	t.mu.Lock()
	t.shell = nil
	close(sh.gone)
	t.mu.Unlock()
}

// softReset ends what a program that was cut off may have left: the alternate
// screen, mouse reports, a hidden cursor, bracketed paste.
//
// None of it moves the cursor, as ?1049l and the terminals' own soft reset would.
const softReset = "\x1b[?47l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l" +
	"\x1b[?1l\x1b>\x1b[4l\x1b[?6l\x1b[?7h\x1b7\x1b[r\x1b8\x1b(B\x1b[?25h\x1b[0m"

// print adds output.
func (t *Terminal) print(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for piece := range slices.Chunk(p, max(1, t.opts.Scrollback/2)) {
		t.awaitRoom(len(piece))
		t.output.write(piece)
		t.changed.Broadcast()
	}
}

// awaitRoom holds up the shell until n bytes overtake no viewer, and drops
// those for whom the others have waited long enough. Viewers who all lag are
// waited for: each ends by itself if it takes nothing at all.
func (t *Terminal) awaitRoom(n int) {
	if len(t.overtaken(n)) == 0 {
		return
	}
	patience := time.AfterFunc(maxLag, t.wakeAll)
	defer patience.Stop()
	since := time.Now()
	for !t.closed {
		lagging := t.overtaken(n)
		switch {
		case len(lagging) == 0:
			return
		case len(lagging) < len(t.viewers) && time.Since(since) >= maxLag:
			for _, v := range lagging {
				t.remove(v)
				v.giveUp(errTooSlow)
			}
			return
		}
		t.changed.Wait()
	}
}

// overtaken are the viewers for whom n more bytes would be a gap.
func (t *Terminal) overtaken(n int) []*viewer {
	oldest := t.output.end + int64(n) - int64(t.opts.Scrollback)
	var lagging []*viewer
	for _, v := range t.viewers {
		if v.offset < oldest {
			lagging = append(lagging, v)
		}
	}
	return lagging
}

// title is what the page's tab is called.
func (t *Terminal) title() string {
	name := "bash"
	if len(t.opts.Command) > 0 {
		name = filepath.Base(t.opts.Command[0])
	}
	host, err := os.Hostname()
	if err != nil {
		return name
	}
	return name + " (" + host + ")"
}
