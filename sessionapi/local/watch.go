package local

import (
	"context"
	"errors"
	"maps"
	"os"

	"go.uber.org/zap"

	"github.com/cubeplexai/cubepod/internal/session"
)

// Watch implements sessionapi.Watcher: it hears of supervisors that end, those
// that an earlier program started included.
func (r *Runtime) Watch(ctx context.Context, changed func(session.ID)) {
	ended := make(chan session.ID)
	r.watchMu.Lock()
	r.watchers[ended] = ctx.Done()
	r.watchMu.Unlock()
	defer func() {
		r.watchMu.Lock()
		defer r.watchMu.Unlock()
		delete(r.watchers, ended)
	}()
	r.adopt()
	changed("") // what ended while nobody watched
	for {
		select {
		case id := <-ended:
			changed(id)
		case <-ctx.Done():
			return
		}
	}
}

// adopt waits for the supervisors that other programs started.
func (r *Runtime) adopt() {
	entries, err := os.ReadDir(r.sandboxes())
	if err != nil {
		r.log.Warn("sandboxes of an earlier run are not watched", zap.Error(err))
		return
	}
	for _, e := range entries {
		id, ok := session.ParseID(e.Name())
		if !ok {
			continue
		}
		st, err := r.readState(id)
		if err != nil || st.Starting { // whoever starts it waits for it
			continue
		}
		p, err := r.supervisor(id, st)
		if err == nil {
			r.await(id, p)
		} else if !errors.Is(err, os.ErrProcessDone) {
			r.log.Warn("sandbox is not watched", zap.String("sandbox", string(id)), zap.Error(err))
		}
	}
}

// reap takes the exit status of a supervisor of ours when it ends, so that it
// does not stay a zombie, and tells those who watch.
func (r *Runtime) reap(id session.ID, ref procRef) error {
	p, err := reopenProcess(ref)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	if err != nil {
		return err
	}
	r.await(id, p)
	return nil
}

// await tells those who watch when p ends, and closes it.
func (r *Runtime) await(id session.ID, p *process) {
	r.reaper.Go(func() {
		defer p.close()
		if p.wait(r.life) != nil { // waiting reaps
			return
		}
		r.watchMu.Lock()
		watchers := maps.Clone(r.watchers)
		r.watchMu.Unlock()
		for c, gone := range watchers {
			select {
			case c <- id:
			case <-gone:
			case <-r.life.Done():
			}
		}
	})
}
