package terminal

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cubeplexai/cubepod/desktopctl/daemon"
)

const (
	// ttydStart bounds the wait for a ttyd that was just started.
	ttydStart = 10 * time.Second
	// ttydGrace is how long it has to end after SIGTERM.
	ttydGrace = time.Second
)

// TtydOptions say how to run ttyd. All of them are needed.
type TtydOptions struct {
	Program string   // its path
	Socket  string   // where it is to listen, a path in a directory of ours
	PidFile string   // where others look for it
	Attach  []string // what it runs for each viewer; see Attach
	Env     []string
	Log     io.Writer // where it and the proxy write
}

// Ttyd serves a Terminal's viewers by the program ttyd.
//
// ttyd checks neither Host nor Origin on its own terms, ends what it runs when
// its viewer leaves, and shows each viewer a run of its own. So it listens on a
// Unix socket behind this handler, and what it runs is Attach, which shows the
// Terminal's one shell. It starts when Start is called, and again when a viewer
// finds it dead; one that does not work at all is done without.
type Ttyd struct {
	opts     TtydOptions
	terminal *Terminal
	proxy    *httputil.ReverseProxy

	life context.Context // ends with Close
	end  context.CancelFunc
	work sync.WaitGroup // viewers and the program

	turn    sync.Mutex    // held while the program is looked for and started; guards
	running chan struct{} // closed when the program has ended

	mu     sync.Mutex // guards
	closed bool
}

// NewTtyd returns the handler of t's port where ttyd is installed. It owns t:
// Close ends both.
func NewTtyd(t *Terminal, opts TtydOptions) *Ttyd {
	d := &Ttyd{opts: opts, terminal: t}
	d.life, d.end = context.WithCancel(context.Background())
	d.proxy = &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.Host = "http", "ttyd"
			// ttyd knows its protocol by this alone.
			pr.Out.Header.Set("Sec-Websocket-Protocol", Subprotocol)
			// The edge reads the messages of those who may only look.
			pr.Out.Header.Del("Sec-Websocket-Extensions")
			pr.Out.Header.Del("Origin") // the guard has checked it
		},
		ModifyResponse: func(resp *http.Response) error {
			if attemptOf(resp.Request).plain {
				resp.Header.Del("Sec-Websocket-Protocol")
			}
			return nil
		},
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				var dialer net.Dialer
				return dialer.DialContext(ctx, "unix", opts.Socket)
			},
		},
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) { attemptOf(r).err = err },
		ErrorLog:     log.New(io.Discard, "", 0), // what is left is viewers that went away
	}
	return d
}

// attempt is one try to hand a request on.
type attempt struct {
	plain bool  // the client asked for no subprotocol
	err   error // why there is no answer yet
}

type attemptKey struct{}

func attemptOf(r *http.Request) *attempt { return r.Context().Value(attemptKey{}).(*attempt) }

// Start starts the program without waiting for it.
func (d *Ttyd) Start() {
	if !d.begin() {
		return
	}
	go func() {
		defer d.work.Done()
		if err := d.ensure(d.life); err != nil {
			fmt.Fprintf(d.opts.Log, "ttyd: %v; doing without\n", err)
		}
	}()
}

// ServeHTTP answers one request; for a viewer's WebSocket it returns when that
// ends.
func (d *Ttyd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/ws" || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || !d.begin() {
		d.terminal.ServeHTTP(w, r)
		return
	}
	defer d.work.Done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(d.life, cancel)()
	var err error
	for range 2 { // it may have died since it was looked at
		if err = d.ensure(ctx); err != nil {
			break
		}
		a := &attempt{plain: r.Header.Get("Sec-Websocket-Protocol") == ""}
		d.proxy.ServeHTTP(w, r.WithContext(context.WithValue(ctx, attemptKey{}, a)))
		if err = a.err; err == nil || ctx.Err() != nil {
			return
		}
	}
	fmt.Fprintf(d.opts.Log, "ttyd: %v; doing without\n", err)
	d.terminal.ServeHTTP(w, r)
}

// Close ends every viewer, the program and the terminal, and waits for all.
func (d *Ttyd) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.end()
	d.work.Wait()
	return d.terminal.Close()
}

// begin counts a piece of work that Close has to wait for, unless Close was
// called.
func (d *Ttyd) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.work.Add(1)
	return true
}

// ensure makes the program run and listen. The caller holds a piece of work.
func (d *Ttyd) ensure(ctx context.Context) error {
	d.turn.Lock()
	defer d.turn.Unlock()
	ctx, cancel := context.WithTimeout(ctx, ttydStart)
	defer cancel()
	if d.running != nil && !isClosed(d.running) {
		if d.listens(ctx) == nil {
			return nil
		}
		// One that was killed a moment ago is yet to be waited for.
		select {
		case <-d.running:
		case <-ctx.Done():
			return fmt.Errorf("it runs and does not listen: %w", context.Cause(ctx))
		}
	}
	if err := os.RemoveAll(d.opts.Socket); err != nil {
		return err
	}
	ended, err := d.launch()
	if err != nil {
		return err
	}
	d.running = ended
	return daemon.Poll(ctx, func(ctx context.Context) error {
		if isClosed(ended) {
			return daemon.Final(daemon.ErrExited)
		}
		return d.listens(ctx)
	})
}

// listens returns nil when the program takes connections.
func (d *Ttyd) listens(ctx context.Context) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", d.opts.Socket)
	if err != nil {
		return err
	}
	return conn.Close()
}

// launch starts the program; ended is closed when it was waited for.
func (d *Ttyd) launch() (ended chan struct{}, err error) {
	args := []string{
		"--interface", d.opts.Socket, "--writable", "--debug", "3", // errors and warnings
		"--client-option", "titleFixed=" + d.terminal.title(),
	}
	cmd := exec.CommandContext(d.life, d.opts.Program, append(args, d.opts.Attach...)...)
	cmd.Dir = "/"
	cmd.Env = d.opts.Env
	cmd.Stdout, cmd.Stderr = d.opts.Log, d.opts.Log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = ttydGrace
	// It must not outlive us, however we end: its successor needs the socket.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	ended = make(chan struct{})
	started := make(chan error, 1)
	d.work.Go(func() {
		defer close(ended)
		// The signal comes when the thread that started the child ends, so
		// this one is kept for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		writePid(d.opts.PidFile, cmd.Process.Pid, d.opts.Log)
		started <- nil
		_ = cmd.Wait() // how it ended is in its log
		removePid(d.opts.PidFile, cmd.Process.Pid)
	})
	return ended, <-started
}

// writePid tells others which process the program is. It may fail: the file may
// be another user's, and what depends on it is theirs.
func writePid(path string, pid int, log io.Writer) {
	if err := daemon.ReplaceFile(path, fmt.Appendf(nil, "%d\n", pid), 0o644); err != nil {
		fmt.Fprintf(log, "ttyd: %v\n", err)
	}
}

// removePid removes the file unless it names another process by now.
func removePid(path string, pid int) {
	if b, err := daemon.ReadFile(path); err == nil && strings.TrimSpace(string(b)) == strconv.Itoa(pid) {
		_ = os.Remove(path)
	}
}
