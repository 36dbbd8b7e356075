package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

const (
	redisStart = 60 * time.Second // it reads its append-only file first
	redisStop  = 10 * time.Second
	// redisRestarts is how often a server that ended by itself is started anew
	// within redisWindow.
	redisRestarts = 5
	redisWindow   = time.Minute
	// maxSocketPath is what a Unix socket's address has room for.
	maxSocketPath = 107
)

// keepRedis starts the embedded Redis anew when it ends, until ctx does.
// Meanwhile requests are answered with 503; its append-only file keeps what it
// knew.
func (p *program) keepRedis(ctx context.Context) error {
	var ends []time.Time // within the window
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.redis.done: // closed also when the last try came to nothing
		}
		now := time.Now()
		ends = slices.DeleteFunc(append(ends, now), func(t time.Time) bool { return now.Sub(t) > redisWindow })
		if len(ends) > redisRestarts {
			return fmt.Errorf("the embedded redis-server ended %d times within %v, see %s", len(ends), redisWindow, p.redis.logPath)
		}
		p.log.Error("the embedded redis-server ended, starting it anew", zap.String("log", p.redis.logPath))
		again, err := startRedis(ctx, filepath.Dir(p.redis.socket))
		switch {
		case err == nil:
			p.redis = again
			p.log.Info("the embedded redis-server is back")
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, errRedisEnded):
			return fmt.Errorf("the embedded redis-server ended: %w", err)
		}
	}
}

// errRedisEnded is why a server did not come up that started and ended.
var errRedisEnded = errors.New("it ended")

// embeddedRedis is a redis-server child. One goroutine waits for its end and
// closes done.
type embeddedRedis struct {
	socket  string
	logPath string
	cmd     *exec.Cmd
	done    chan struct{}
}

// startRedis starts a redis-server on a Unix socket in dir and returns once it
// answers. The caller has the lock of the directory, so a server that answers
// there already is one that a killed parent left.
func startRedis(ctx context.Context, dir string) (*embeddedRedis, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, errors.New("the embedded Redis needs the program redis-server: install the package redis-server, or give --redis a URL")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	r := &embeddedRedis{socket: filepath.Join(dir, "redis.sock"), logPath: filepath.Join(dir, "redis.log"), done: make(chan struct{})}
	if len(r.socket) > maxSocketPath {
		return nil, fmt.Errorf("the path %s is too long for a socket: choose a shorter --data", r.socket)
	}
	ctx, cancel := context.WithTimeout(ctx, redisStart)
	defer cancel()
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: r.socket, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
	defer client.Close()
	if err := endOrphan(ctx, client); err != nil {
		return nil, err
	}
	r.cmd = exec.Command(path, "--port", "0", "--unixsocket", r.socket, "--unixsocketperm", "600", "--dir", dir,
		"--appendonly", "yes", "--save", "", "--daemonize", "no", "--logfile", r.logPath)
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C at the terminal is for us
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	go func() {
		defer close(r.done)
		_ = r.cmd.Wait() // its log says more than its status
	}()
	if err := r.awaitAnswer(ctx, client); err != nil {
		r.stop()
		return nil, fmt.Errorf("redis-server did not come up, see %s: %w", r.logPath, err)
	}
	return r, nil
}

// endOrphan ends a server that answers on the socket, and waits until it is
// gone. Its append-only file keeps what it knows.
func endOrphan(ctx context.Context, client *redis.Client) error {
	if err := client.Ping(ctx).Err(); refused(err) {
		return nil
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := client.ShutdownNoSave(ctx).Err()
		if refused(err) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.New("a redis-server from an earlier run does not end")
		}
	}
}

// refused reports whether nobody listens at the socket.
func refused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist)
}

func (r *embeddedRedis) awaitAnswer(ctx context.Context, client *redis.Client) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := client.Ping(ctx).Err()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-r.done:
			return errRedisEnded
		case <-ctx.Done():
			return err
		}
	}
}

func (r *embeddedRedis) url() string { return "unix://" + r.socket }

// stop ends the server and waits for it.
func (r *embeddedRedis) stop() {
	_ = r.cmd.Process.Signal(syscall.SIGTERM) // one that ended is as good
	t := time.NewTimer(redisStop)
	defer t.Stop()
	select {
	case <-r.done:
	case <-t.C:
		_ = r.cmd.Process.Kill()
		<-r.done
	}
}

// lockData takes the data directory for this process, until the file is
// closed.
func lockData(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("another cubepod-sessionapi uses the data directory %s: end it, or choose another --data", dir)
		}
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f, nil
}
