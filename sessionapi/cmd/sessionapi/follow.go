package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
)

// followInterval is how often files are looked at. They are small, and what a
// watch of the kernel's says of a file that is replaced, or mounted from
// elsewhere, depends on how that is done.
const followInterval = time.Second

// follower reads files again when their content changes. A file that cannot be
// used changes nothing but what warnings says.
type follower struct {
	log   *zap.Logger
	files []*followedFile

	mu       sync.Mutex // guards the fields below
	problems map[string]string
}

type followedFile struct {
	setting string
	path    string
	use     func() error
	seen    [sha256.Size]byte
}

// follow reads the file of a setting by use, now and after each change.
func (f *follower) follow(setting, path string, use func() error) error {
	file := &followedFile{setting: setting, path: path, use: use}
	file.seen = file.sum() // before it is used: a change in between is seen
	if err := use(); err != nil {
		return fmt.Errorf("%s: %w", setting, err)
	}
	f.files = append(f.files, file)
	return nil
}

func (f *followedFile) sum() [sha256.Size]byte {
	data, err := os.ReadFile(f.path)
	if err != nil {
		return sha256.Sum256([]byte(err.Error()))
	}
	return sha256.Sum256(data)
}

// run follows the files until ctx ends.
func (f *follower) run(ctx context.Context) {
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, file := range f.files {
			if sum := file.sum(); sum != file.seen {
				file.seen = sum
				f.changed(file)
			}
		}
	}
}

func (f *follower) changed(file *followedFile) {
	err := file.use()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.log.Error("file cannot be used, its last content stays in force", zap.String("setting", file.setting), zap.Error(err))
		if f.problems == nil {
			f.problems = map[string]string{}
		}
		f.problems[file.setting] = fmt.Sprintf("%s: %v; the file's last content is in force", file.setting, err)
		return
	}
	f.log.Info("file read again", zap.String("setting", file.setting))
	delete(f.problems, file.setting)
}

// warnings says which files cannot be used.
func (f *follower) warnings() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, setting := range slices.Sorted(maps.Keys(f.problems)) {
		out = append(out, f.problems[setting])
	}
	return out
}
