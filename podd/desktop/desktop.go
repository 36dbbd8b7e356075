// Package desktop is podd's side of the graphical stack: it holds the guest's
// port 9222 and starts and stops the stack through its supervisor. Nothing
// graphical runs until a request reaches that port or somebody runs the
// supervisor.
package desktop

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/cdpfront"
	"github.com/cubeplexai/cubepod/internal/loopback"
	"github.com/cubeplexai/cubepod/internal/poddapi"
)

// Where the front listens, and the browser itself.
var (
	Addr     = loopback.Host(cdpfront.Port)
	Chromium = loopback.Host(cdpfront.Port + 1)
)

const (
	// startTimeout bounds one start of the stack. It is longer than the
	// supervisor's own bound, 90 s: one that is ended half-way leaves daemons
	// that are still coming up, and the next one takes those for dead.
	startTimeout = 100 * time.Second
	// home is the guest user's, whatever passwd says.
	home = "/home/cubeplex"
)

// Desktop is the stack behind one supervisor. It is safe for concurrent use.
type Desktop struct {
	ctl   string
	log   *log.Logger
	front *cdpfront.Front
	http  *http.Server
	serve sync.WaitGroup

	turn sync.Mutex // held while the supervisor runs

	mu      sync.Mutex         // guards the fields below
	stopped bool               // nothing may start it
	starts  context.CancelFunc // ends the start under way
}

// New returns the Desktop of the supervisor at ctl, whose browser listens at
// chromium.
func New(ctl, chromium string, logger *log.Logger) *Desktop {
	d := &Desktop{ctl: ctl, log: logger}
	d.front = cdpfront.New(chromium, d.start)
	d.http = &http.Server{Handler: d.front, ReadHeaderTimeout: 10 * time.Second, ErrorLog: logger}
	return d
}

// Listen takes addr for the front and serves it until Close. Where another
// program has it, that one keeps it.
func (d *Desktop) Listen(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	d.serve.Go(func() {
		if err := d.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			d.log.Printf("serve %s: %v", addr, err)
		}
	})
	return nil
}

// Close gives the port up and waits for its requests. The stack runs on.
func (d *Desktop) Close() error {
	d.hold()
	err := d.http.Close()
	d.serve.Wait()
	return errors.Join(err, d.front.Close())
}

// start wakes the stack.
func (d *Desktop) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	d.turn.Lock()
	defer d.turn.Unlock()
	d.mu.Lock()
	if d.stopped {
		d.mu.Unlock()
		return apierror.New(apierror.Unavailable, "stopping", "the sandbox is about to stop and starts no desktop")
	}
	d.starts = cancel
	d.mu.Unlock()
	if err := d.run(ctx, "start"); err != nil {
		return apierror.Wrap(err, apierror.BadGateway, "desktop_start", "the desktop does not start")
	}
	return nil
}

// Stop ends the stack cleanly and keeps it from being woken until Allow. A
// start under way is broken off.
func (d *Desktop) Stop(ctx context.Context) error {
	d.hold()
	d.turn.Lock()
	defer d.turn.Unlock()
	return d.run(ctx, "stop")
}

func (d *Desktop) hold() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	if d.starts != nil {
		d.starts()
	}
}

// Allow lets the stack be woken again.
func (d *Desktop) Allow() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = false
}

// run calls the supervisor as the guest's user.
func (d *Desktop) run(ctx context.Context, verb string) error {
	cmd := exec.CommandContext(ctx, d.ctl, verb)
	cmd.Dir = "/"
	cmd.Env = []string{
		"HOME=" + home, "USER=cubeplex", "LOGNAME=cubeplex", "SHELL=/bin/bash", "LANG=C.UTF-8",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	}
	// A session of its own, and no descriptors but these: the daemons it
	// starts must not hang on podd.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: poddapi.GuestUID, Gid: poddapi.GuestGID}
	}
	var stdout, stderr tail
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 2 * time.Second // for one that ignores it, or left a child with its stderr
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return fmt.Errorf("%s %s: %w: %s", d.ctl, verb, err, strings.TrimSpace(stdout.String()+stderr.String()))
	}
	return nil
}

// tail keeps the last of what is written to it.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	const most = 2 << 10
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-most):]
	return len(p), nil
}

func (t *tail) String() string { return string(t.b) }
