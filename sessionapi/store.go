package sessionapi

import (
	"context"
	"errors"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/session"
)

// What a Store says besides *apierror.Error.
var (
	// ErrLeaseHeld means that somebody else has the lease.
	ErrLeaseHeld = errors.New("the lease is held")
	// ErrLeaseLost means that the lease expired or went to somebody else.
	ErrLeaseLost = errors.New("the lease was lost")
	// ErrChanged means that the record was written since it was read.
	ErrChanged = errors.New("the record changed")
)

// Store keeps the records, shared by all replicas. It is safe for concurrent
// use. A store that does not answer is apierror.Unavailable, code
// "store_unavailable", and never looks like a missing sandbox.
type Store interface {
	// Create writes a new record and takes its lease in the same step, so that
	// a record that somebody is to work on is never without one.
	Create(ctx context.Context, rec *session.Record, lookAt time.Time, ttl time.Duration) (Lease, error)
	// Get gives a record, a tombstone included. It reports apierror.NotFound,
	// code "sandbox_not_found".
	Get(ctx context.Context, id session.ID) (Entry, error)
	// GetMany gives the records of ids that there are, in the order of ids.
	GetMany(ctx context.Context, ids []session.ID) ([]*session.Record, error)
	// Write replaces a record. It reports ErrChanged and ErrLeaseLost.
	Write(ctx context.Context, w Write) error

	// Acquire takes the lease of a sandbox, or reports ErrLeaseHeld.
	Acquire(ctx context.Context, id session.ID, ttl time.Duration) (Lease, error)
	// Renew makes a lease last ttl from now, or reports ErrLeaseLost.
	Renew(ctx context.Context, l Lease, ttl time.Duration) error
	// Release gives a lease back. A lease that was lost is released already.
	Release(ctx context.Context, l Lease) error

	// List gives positions of at most n sandboxes, the youngest first, after
	// the given one. A zero position is before the first. Sandboxes that are
	// gone can be among them.
	List(ctx context.Context, after Position, n int) ([]Position, error)
	// Due gives at most n sandboxes whose time to be looked at has come.
	Due(ctx context.Context, now time.Time, n int) ([]session.ID, error)
	// Postpone moves the time to look at id; zero means never. The caller
	// reads the record again afterwards and calls Hasten if it must be earlier.
	Postpone(ctx context.Context, id session.ID, lookAt time.Time) error
	// Hasten makes the time to look at id no later than lookAt.
	Hasten(ctx context.Context, id session.ID, lookAt time.Time) error
	// Forget takes id off the lists.
	Forget(ctx context.Context, id session.ID) error

	// Place puts rec among the sandboxes by its CreatedAt.
	Place(ctx context.Context, rec *session.Record) error

	// Offer puts id among the standbys of a template.
	Offer(ctx context.Context, template string, id session.ID) error
	// Claim takes one of the standbys out, or gives "" when there is none.
	Claim(ctx context.Context, template string) (session.ID, error)
	// Withdraw takes id out and reports whether it was there.
	Withdraw(ctx context.Context, template string, id session.ID) (bool, error)
	// Standbys gives all of a template.
	Standbys(ctx context.Context, template string) ([]session.ID, error)

	// Touch notes that id was used at t; the note lasts for ttl.
	Touch(ctx context.Context, id session.ID, t time.Time, ttl time.Duration) error
	// Touched gives the time of the last Touch, zero when there is none.
	Touched(ctx context.Context, id session.ID) (time.Time, error)

	// Deployment names this store for ever. It is a word of [a-z0-9].
	Deployment(ctx context.Context) (string, error)
	// Time is the store's clock.
	Time(ctx context.Context) (time.Time, error)
	// Lead makes holder the one that does the janitor's work for ttl, unless
	// another is.
	Lead(ctx context.Context, holder string, ttl time.Duration) (bool, error)
	// Watch calls changed with the id of each record that is written, until ctx
	// ends. It reconnects by itself and may miss writes meanwhile.
	Watch(ctx context.Context, changed func(session.ID))
	// Ping reports whether the store answers.
	Ping(ctx context.Context) error
}

// Entry is a record and the revision it was read at.
type Entry struct {
	Record *session.Record
	Rev    int64
}

// Lease is the right to change where one sandbox stands.
type Lease struct {
	ID     session.ID
	Holder string
	// Fence is raised with each lease: a write under an older one is refused.
	Fence int64
}

// Write is one compare-and-set of a record.
type Write struct {
	Entry
	// LookAt is when the janitor should look at the sandbox; zero means never.
	LookAt time.Time
	// Lease is set by those who change the record's State.
	Lease *Lease
	// Release gives Lease back with the write, so that nobody sees the result
	// while the lease is still held.
	Release bool
	// Expire, when not zero, lets the record vanish after so long.
	Expire time.Duration
}

// Position is a sandbox's place in the list.
type Position struct {
	ID      session.ID
	Created time.Time // whole milliseconds
}

// NotFound is the error of a sandbox that is not there, or not the caller's.
func NotFound(id session.ID) *apierror.Error {
	return apierror.New(apierror.NotFound, "sandbox_not_found", "there is no sandbox %q", id)
}
