package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// What a daemon logs may be up to anybody, such as a page that makes the
// browser complain, so logs are kept small while they are written. One takes
// no more disk than maxLog, what is written within trimInterval, and keptLog
// for the end of what was cut (twice that while it is cut).
const (
	maxLog       = 4 << 20
	keptLog      = 1 << 20
	trimInterval = 5 * time.Second
)

// LogPath is where the daemon that logs under name writes.
func (d Dir) LogPath(name string) string { return filepath.Join(string(d), name+".log") }

// openLog opens the log of that name, small, in place of what is no log.
func (d Dir) openLog(name string) (*os.File, error) {
	path := d.LogPath(name)
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		if err := os.RemoveAll(path); err != nil {
			return nil, err
		}
	} else if err == nil {
		_ = trimLog(path) // a large log is better than none
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
}

// KeepLogsSmall calls TrimLogs again and again until ctx ends. It reports an
// error when it is another than the last: reports are logged too.
func (d Dir) KeepLogsSmall(ctx context.Context, report func(error)) {
	tick := time.NewTicker(trimInterval)
	defer tick.Stop()
	var last string
	for {
		var now string
		if err := d.TrimLogs(); err != nil {
			if now = err.Error(); now != last {
				report(err)
			}
		}
		last = now
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// TrimLogs cuts the logs of d that have become large. The end of what is cut
// is kept in a file of the log's name and ".1".
func (d Dir) TrimLogs() error {
	logs, err := filepath.Glob(d.LogPath("*"))
	if err != nil {
		return err
	}
	var failed []error
	for _, path := range logs {
		// What is no regular file does not grow.
		if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || info.Size() <= maxLog {
			continue
		}
		failed = append(failed, trimLog(path))
	}
	return errors.Join(failed...)
}

// trimLog cuts a log if it is large. Its writers append, so they go on at the
// beginning of the file; what they write in the moment of the cut is lost.
func trimLog(path string) error {
	f, info, err := openRegular(path, os.O_RDWR)
	if err != nil {
		return fmt.Errorf("trim log: %w", err)
	}
	defer f.Close()
	if info.Size() <= maxLog {
		return nil
	}
	end := make([]byte, keptLog)
	n, err := f.ReadAt(end, info.Size()-keptLog)
	if err == nil {
		if _, lines, ok := bytes.Cut(end[:n], []byte("\n")); ok {
			end = lines
		}
		err = ReplaceFile(path+".1", end, 0o644)
	}
	// A full disk is no reason to keep what fills it.
	if err = errors.Join(err, f.Truncate(0)); err != nil {
		return fmt.Errorf("trim log: %w", err)
	}
	return nil
}
