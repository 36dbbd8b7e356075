package docker

import (
	"context"
	"time"

	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"

	"github.com/cubeplexai/cubepod/internal/session"
)

// watchAgain is how long an engine that does not answer is left alone.
const watchAgain = time.Second

// Watch implements sessionapi.Watcher.
func (r *Runtime) Watch(ctx context.Context, changed func(session.ID)) {
	for ctx.Err() == nil {
		r.follow(ctx, changed)
		pause := time.NewTimer(watchAgain)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
}

// follow hands the engine's events on until their stream breaks off, as it does
// when the engine restarts. What happened while there was none is not known.
func (r *Runtime) follow(ctx context.Context, changed func(session.ID)) {
	if _, err := r.engine.Ping(ctx); err != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	messages, broken := r.engine.Events(ctx, events.ListOptions{Filters: filters.NewArgs(
		filters.Arg("type", string(events.ContainerEventType)),
		filters.Arg("label", labelSandbox),
		filters.Arg("event", string(events.ActionStart)),
		filters.Arg("event", string(events.ActionDie)),
		filters.Arg("event", string(events.ActionDestroy)),
	)})
	changed("")
	for {
		select {
		case m := <-messages:
			if id, ok := session.ParseID(m.Actor.Attributes[labelSandbox]); ok {
				changed(id)
			}
		case <-broken:
			return
		}
	}
}
