// Package poddapi is the contract between podd, the daemon in a sandbox, and
// the programs that call it: wire types, limits, tokens, and a client.
//
// Times are RFC 3339, sizes and cursors count bytes, durations say their unit
// in their name.
package poddapi

import "time"

// Where podd lives in a guest.
const (
	Port     = 49983
	Addr     = "0.0.0.0:49983"
	Workdir  = "/workspace"
	RunDir   = "/run/cubepod"
	EnvFile  = RunDir + "/sandbox-env.sh"
	GuestUID = 1000
	GuestGID = 1000
	CtlPath  = "/opt/cubepod/desktop/cubepod-desktop-ctl"
)

// Limits that both sides know.
const (
	// MaxOutput is the most bytes of output in one answer, and the default of
	// RunRequest.OutputLimit.
	MaxOutput = 1 << 20
	// MaxJSON is the largest JSON body podd reads. It has room for a command
	// of several megabytes and its environment.
	MaxJSON = 8 << 20
	// MaxWait bounds the long poll of logs.
	MaxWait = 60 * time.Second
)

// Health is the answer to GET /health.
type Health struct {
	Status          string `json:"status"` // "ok"
	Daemon          string `json:"daemon"` // "podd"
	Version         string `json:"version"`
	Workdir         string `json:"workdir"`
	ActiveProcesses int    `json:"active_processes"`
	InitState       string `json:"init_state"` // ready, overlay, no_overlay, none
}

// RunRequest is the body of POST /v1/commands/run. Pointer fields are nil
// when the caller left them out.
type RunRequest struct {
	Command    string            `json:"command"`
	Workdir    string            `json:"workdir,omitempty"`
	Envs       map[string]string `json:"envs,omitempty"`
	Background bool              `json:"background,omitempty"`
	UID        *uint32           `json:"uid,omitempty"`
	GID        *uint32           `json:"gid,omitempty"`
	// User is a name from passwd; it excludes UID and GID.
	User string `json:"user,omitempty"`
	// TimeoutMS ends the command's whole tree after so many milliseconds;
	// 0 means never.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// Stdin is given to the command, which then reads its end. Without it
	// stdin is /dev/null.
	Stdin *string `json:"stdin,omitempty"`
	// StdinOpen keeps stdin open after Stdin, for POST …/{id}/stdin, until a
	// call with ?eof=1. A terminal's is always open.
	StdinOpen bool  `json:"stdin_open,omitempty"`
	PTY       *Size `json:"pty,omitempty"`
	// IdempotencyKey makes a repeated call give the command that the first
	// one started.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	// OutputLimit is the most bytes of a foreground answer's output; 0 means
	// MaxOutput.
	OutputLimit int64 `json:"output_limit,omitempty"`
	// Separate adds stdout and stderr to the combined output.
	Separate bool `json:"separate,omitempty"`
}

// Size is a terminal's size in character cells.
type Size struct {
	Cols uint16 `json:"cols"`
	Rows uint16 `json:"rows"`
}

// Status is where a command stands. Every answer about a command has it.
type Status struct {
	ID      string `json:"id"`
	PID     int    `json:"pid"`
	Running bool   `json:"running"`
	// ExitCode is nil while the command runs; 126 and 127 for not executable
	// and not found, 128+n for a signal.
	ExitCode *int `json:"exit_code"`
	// Cursor is the end of the output so far.
	Cursor    int64      `json:"cursor"`
	Signal    string     `json:"signal,omitempty"` // such as "SIGKILL"
	TimedOut  bool       `json:"timed_out"`
	OOMKilled bool       `json:"oom_killed"`
	Truncated bool       `json:"truncated"`
	StartedAt time.Time  `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at"`
	UID       uint32     `json:"uid"`
	GID       uint32     `json:"gid"`
}

// RunResponse is the answer to POST /v1/commands/run.
type RunResponse struct {
	Status
	Output    string  `json:"output"`
	OutputB64 string  `json:"output_b64,omitempty"`
	Stdout    *string `json:"stdout,omitempty"`
	StdoutB64 string  `json:"stdout_b64,omitempty"`
	Stderr    *string `json:"stderr,omitempty"`
	StderrB64 string  `json:"stderr_b64,omitempty"`
}

// Logs is the answer to GET /v1/commands/{id}/logs. Its Cursor is the offset
// after what Content holds.
type Logs struct {
	Status
	Content    string `json:"content"`
	ContentB64 string `json:"content_b64,omitempty"`
}

// Commands is the answer to GET /v1/commands.
type Commands struct {
	Commands []Status `json:"commands"`
}

// Killed is the answer to POST /v1/commands/{id}/kill for a command that ran.
// For a finished one the answer is KillExited.
type Killed struct {
	Status string `json:"status"` // "killed"
	ID     string `json:"id"`
}

// KillExited is the answer to a kill of a finished command: its status fields
// and the word "exited".
type KillExited struct {
	Status
	Word string `json:"status"` // "exited"
}

// Entry is one file. Type of the link itself, not of what it points to.
type Entry struct {
	Name  string    `json:"name"`
	Path  string    `json:"path"`
	IsDir bool      `json:"is_dir"`
	Size  int64     `json:"size"`
	Mode  string    `json:"mode"` // octal, such as "0644"
	UID   uint32    `json:"uid"`
	GID   uint32    `json:"gid"`
	MTime time.Time `json:"mtime"`
	Link  string    `json:"link,omitempty"` // the target, for a symlink
}

// Entries is the answer to GET /v1/files/list.
type Entries struct {
	Entries []Entry `json:"entries"`
}

// Written is the answer to PUT /v1/files.
type Written struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
}

// Extracted is the answer to PUT /v1/archive.
type Extracted struct {
	Path  string `json:"path"`
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
}

// MkdirRequest is the body of POST /v1/files/mkdir.
type MkdirRequest struct {
	Path string  `json:"path"`
	UID  *uint32 `json:"uid,omitempty"`
	GID  *uint32 `json:"gid,omitempty"`
	Mode string  `json:"mode,omitempty"` // octal; default 0755
}

// MoveRequest is the body of POST /v1/files/move.
type MoveRequest struct {
	From      string `json:"from"`
	To        string `json:"to"`
	Overwrite bool   `json:"overwrite,omitempty"`
}

// ListeningPort is one TCP socket that listens in the guest.
type ListeningPort struct {
	Port    int    `json:"port"`
	Address string `json:"address"`
	Family  string `json:"family"` // ipv4, ipv6
	PID     int    `json:"pid"`    // 0 when unknown
	Command string `json:"command"`
}

// Ports is the answer to GET /v1/ports.
type Ports struct {
	Ports []ListeningPort `json:"ports"`
}

// EnvRequest is the body of PUT /v1/env.
type EnvRequest struct {
	Envs map[string]string `json:"envs"`
}

// Stopped is the answer to POST /v1/lifecycle/prepare-stop.
type Stopped struct {
	Status          string `json:"status"` // "synced"
	ActiveProcesses int    `json:"active_processes"`
}

// ResumeRequest is the body of POST /v1/lifecycle/resume.
type ResumeRequest struct {
	// Now is the caller's clock; podd sets its own by it when it may and
	// must.
	Now *time.Time `json:"now,omitempty"`
}

// Resumed is the answer to POST /v1/lifecycle/resume.
type Resumed struct {
	Status string `json:"status"` // "running"
}

// SignalRequest is the body of POST /v1/commands/{id}/signal.
type SignalRequest struct {
	Signal string `json:"signal"` // with or without SIG
}
