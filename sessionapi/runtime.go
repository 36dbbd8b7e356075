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

	// List yields every sandbox the runtime has something of, running or not.
	List(ctx context.Context) iter.Seq2[session.ID, error]
}

// Spec is what a Runtime needs to know of a sandbox to start it.
type Spec struct {
	ID          session.ID
	Incarnation int64
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
	// Handle is set while the sandbox runs.
	Handle Handle
}

// Template is a kind of sandbox that callers ask for by name.
type Template struct {
	Name string
	// Desktop says that the sandbox has the desktop stack.
	Desktop bool
}

// Checker is a Runtime that can tell whether its host could start a sandbox
// now.
type Checker interface {
	Check(ctx context.Context) error
}
