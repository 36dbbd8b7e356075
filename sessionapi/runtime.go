package sessionapi

import (
	"context"
	"iter"

	"github.com/cubeplexai/cubepod/internal/session"
)

// Runtime runs sandboxes. Implementations are safe for concurrent use and
// every method may be repeated: starting what runs and stopping or deleting
// what is gone both succeed.
//
// A Runtime keeps no state of record in memory: what it knows of a sandbox it
// finds by the sandbox's id, so that any replica can go on with it.
type Runtime interface {
	// Name is what a record's Runtime field says, such as "local".
	Name() string

	// Start brings the sandbox's incarnation up and returns once podd answers
	// in it. Files of an earlier incarnation are there again. A still running
	// earlier incarnation is stopped first; the same incarnation is left
	// alone. It reports apierror.Unavailable, code "runtime_unavailable", if
	// the host cannot run it now. A Start that fails leaves no process behind.
	Start(ctx context.Context, spec Spec) (Handle, error)

	// Inspect reports apierror.NotFound if the runtime has nothing of id.
	Inspect(ctx context.Context, id session.ID) (Status, error)

	// Stop ends every process of the sandbox and keeps its files. The caller
	// has asked podd to prepare for it.
	Stop(ctx context.Context, id session.ID) error

	// Delete stops the sandbox and removes everything of it.
	Delete(ctx context.Context, id session.ID) error

	// List yields every sandbox of a deployment that the runtime has something
	// of, running or not.
	List(ctx context.Context, deployment string) iter.Seq2[session.ID, error]
}

// Spec is what a Runtime needs to know of a sandbox to start it.
type Spec struct {
	ID          session.ID
	Incarnation int64
	// Deployment tells the sandboxes of one store from those of another that
	// has the same host.
	Deployment string
	// Template's resources and image decide what the sandbox looks like.
	Template Template
	// FullToken and TunnelToken are podd's tokens in this incarnation.
	FullToken, TunnelToken string
}

// Handle is what the record keeps of a started sandbox.
type Handle struct {
	// Endpoint is where podd listens.
	Endpoint session.Endpoint
	// Ref is the runtime's own reference, for people and for the runtime.
	Ref string
}

// Status is what a Runtime really has of a sandbox.
type Status struct {
	Running     bool
	Incarnation int64
	// Removed says that what ran the sandbox was removed behind the runtime's
	// back, and that its files are there still: Start makes the rest anew.
	Removed bool
	// Handle is set while the sandbox runs.
	Handle Handle
}

// Checker is a Runtime that can tell whether its host could start a sandbox
// now.
type Checker interface {
	Check(ctx context.Context) error
}

// Warner is a Runtime that can tell what about its host an operator should
// know, although sandboxes run.
type Warner interface {
	Warnings(ctx context.Context) []string
}

// Watcher is a Runtime that hears of what happens to sandboxes by themselves.
type Watcher interface {
	// Watch calls changed with the id of a sandbox whose status may have
	// changed, or with "" when that may be any, until ctx ends.
	Watch(ctx context.Context, changed func(session.ID))
}
