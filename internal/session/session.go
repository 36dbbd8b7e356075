// Package session holds what the session API and the edge share through Redis:
// the record of a sandbox, the names of its keys, and where its podd is.
//
// The API writes records, the edge only reads them. A record is a JSON document
// in the field "doc" of a Redis hash; see [RecordKey] for the layout.
package session

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"
)

// ID names a sandbox: 20 characters of [a-z0-9].
type ID string

const (
	idLen      = 20
	idAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
)

// NewID makes a random ID; two never meet (103 bits).
func NewID() ID {
	out := make([]byte, 0, idLen)
	var buf [2 * idLen]byte
	for len(out) < idLen {
		rand.Read(buf[:])
		for _, b := range buf {
			// 252 is the largest multiple of 36 in a byte: no character is likelier.
			if b < 252 && len(out) < idLen {
				out = append(out, idAlphabet[b%36])
			}
		}
	}
	return ID(out)
}

var idPattern = regexp.MustCompile(`^[a-z0-9]{20}$`)

// ParseID checks that s has the form of an ID.
func ParseID(s string) (ID, bool) { return ID(s), idPattern.MatchString(s) }

// State says where a sandbox stands.
type State string

// The states. Creating, Pausing, Resuming and Deleting are passed through under
// the sandbox's lease; Deleted is the tombstone.
const (
	Creating State = "creating"
	Running  State = "running"
	Pausing  State = "pausing"
	Paused   State = "paused"
	Resuming State = "resuming"
	Deleting State = "deleting"
	Failed   State = "failed"
	Deleted  State = "deleted"
)

// Transient reports whether some replica is, or was, at work on the sandbox.
func (s State) Transient() bool {
	switch s {
	case Creating, Pausing, Resuming, Deleting:
		return true
	}
	return false
}

// Record is a sandbox's state of record.
type Record struct {
	ID       ID     `json:"id"`
	Owner    string `json:"owner"` // name of the API key that made it
	Template string `json:"template"`
	Runtime  string `json:"runtime"` // local, docker, kubernetes
	State    State  `json:"state"`
	// Standby is set while the sandbox is nobody's and waits for a create: the
	// version of the template it was made of.
	Standby string `json:"standby,omitempty"`
	// Reason says in words why State is Failed, or Paused although nobody asked.
	Reason string `json:"reason,omitempty"`
	// StateSince is when the sandbox came into State.
	StateSince time.Time `json:"state_since,omitzero"`

	// Gen starts at 1 and is raised by revoking panels only.
	Gen int64 `json:"gen"`
	// Incarnation counts starts and resumes. podd's tokens depend on it.
	Incarnation int64 `json:"incarnation"`
	// MasterKey and TunnelKey are the ids of the keys podd's tokens are
	// derived from.
	MasterKey string `json:"master_key"`
	TunnelKey string `json:"tunnel_key"`
	// Endpoint is where podd listens; empty while it does not run.
	Endpoint Endpoint `json:"endpoint,omitempty"`
	// Ref is the runtime's own reference to what it made.
	Ref string `json:"ref,omitempty"`

	Metadata map[string]string `json:"metadata,omitempty"`
	Envs     map[string]string `json:"envs,omitempty"`

	CreatedAt time.Time `json:"created_at"`
	StartedAt time.Time `json:"started_at"`
	// EndAt is the hard end; then the sandbox is paused (AutoPause) or
	// deleted.
	EndAt     time.Time `json:"end_at"`
	AutoPause bool      `json:"auto_pause,omitempty"`
	// TimeoutSeconds is what EndAt is counted from at a start or resume.
	TimeoutSeconds int64 `json:"timeout_seconds"`
	// IdleSeconds pauses a sandbox nobody used for so long; 0 means never.
	IdleSeconds int64 `json:"idle_seconds,omitempty"`

	// Ports are the registered guest ports.
	Ports map[int]Port `json:"ports,omitempty"`
	// DesktopWanted is set by starting the desktop and cleared by stopping it:
	// waking the sandbox then brings it back.
	DesktopWanted bool `json:"desktop_wanted,omitempty"`
	// TokensUntil is when the last panel token has expired. The tombstone
	// lives until then.
	TokensUntil time.Time `json:"tokens_until,omitzero"`
}

// Port is one registered guest port.
type Port struct {
	// Address is where the edge dials directly; the zero value means through
	// podd's tunnel.
	Address netip.AddrPort `json:"address,omitzero"`
}

// Endpoint says where podd listens: "unix:<dir>/podd.sock", relative to the
// local runtime's socket directory, or "<ip>:<port>".
type Endpoint string

var socketPattern = regexp.MustCompile(`^[a-z0-9]{20}-[0-9]{1,18}/podd\.sock$`)

// LocalEndpoint is the endpoint of one incarnation under the local runtime.
func LocalEndpoint(id ID, incarnation int64) Endpoint {
	return Endpoint(fmt.Sprintf("unix:%s-%d/podd.sock", id, incarnation))
}

// Socket gives the relative path of a Unix socket endpoint. It never leaves
// the directory it is joined to.
func (e Endpoint) Socket() (string, bool) {
	rel, ok := strings.CutPrefix(string(e), "unix:")
	return rel, ok && socketPattern.MatchString(rel)
}

// AddrPort gives the address of a TCP endpoint. It takes numbers only, never a
// name.
func (e Endpoint) AddrPort() (netip.AddrPort, bool) {
	ap, err := netip.ParseAddrPort(string(e))
	if err != nil || ap.Port() == 0 {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()), true
}

// Encode gives the record's stored form.
func (r *Record) Encode() ([]byte, error) { return json.Marshal(r) }

// Decode reads a stored record.
func Decode(doc []byte) (*Record, error) {
	var r Record
	if err := json.Unmarshal(doc, &r); err != nil {
		return nil, fmt.Errorf("decode record: %w", err)
	}
	if _, ok := ParseID(string(r.ID)); !ok {
		return nil, fmt.Errorf("decode record: no sandbox id in it")
	}
	return &r, nil
}
