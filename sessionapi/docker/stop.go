package docker

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/cubeplexai/cubepod/internal/session"
)

const (
	// grace is how long podd may take to end by itself. It has prepared before.
	grace = 2 // seconds
	// removeTick is how often a removal that somebody else began is looked at.
	removeTick = 50 * time.Millisecond
)

// Stop implements sessionapi.Runtime.
func (r *Runtime) Stop(ctx context.Context, id session.ID) error {
	release, err := r.locks.Acquire(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	list, err := r.containers(ctx, id)
	if err != nil {
		return fmt.Errorf("stop %s: %w", id, err)
	}
	for _, f := range list {
		if f.state == "created" || f.state == "exited" {
			continue
		}
		if err := r.halt(ctx, f.id); err != nil {
			return fmt.Errorf("stop %s: %w", id, engineError(ctx, err))
		}
	}
	return nil
}

// Delete implements sessionapi.Runtime.
func (r *Runtime) Delete(ctx context.Context, id session.ID) error {
	release, err := r.locks.Acquire(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	list, err := r.containers(ctx, id)
	if err != nil {
		return fmt.Errorf("delete %s: %w", id, err)
	}
	for _, f := range list {
		if err := r.remove(ctx, f.id); err != nil {
			return fmt.Errorf("delete %s: %w", id, engineError(ctx, err))
		}
	}
	for _, name := range volumesOf(id) {
		if err := r.engine.VolumeRemove(ctx, name, false); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("delete %s: volume %s: %w", id, name, engineError(ctx, err))
		}
	}
	return nil
}

// halt ends a container's processes.
func (r *Runtime) halt(ctx context.Context, id string) error {
	seconds := grace
	err := r.engine.ContainerStop(ctx, id, container.StopOptions{Timeout: &seconds})
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// remove removes a container with its processes and waits until it is gone.
func (r *Runtime) remove(ctx context.Context, id string) error {
	tick := time.NewTicker(removeTick)
	defer tick.Stop()
	for {
		err := r.engine.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true}) // anonymous ones
		if err == nil || errdefs.IsNotFound(err) {
			return nil
		}
		if !errdefs.IsConflict(err) { // somebody else removes it
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// sameName reports whether a rename failed because the container has the name
// already. The engine has no code for it.
func sameName(err error) bool {
	return strings.Contains(err.Error(), "same name as its current name")
}
