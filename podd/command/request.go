package command

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"golang.org/x/sys/unix"
)

// sumOf tells one request from another.
func sumOf(r poddapi.RunRequest) string {
	data, _ := json.Marshal(r) // strings and numbers cannot fail; maps are sorted
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func (m *Manager) identify(r poddapi.RunRequest) (Identity, error) {
	id, err := m.accounts.Identify(r.User, r.UID, r.GID)
	if err != nil || m.root {
		return id, err
	}
	// A podd that is not root runs everything as itself.
	uid, gid := uint32(unix.Geteuid()), uint32(unix.Getegid())
	return m.accounts.Identify("", &uid, &gid)
}

func check(r poddapi.RunRequest) error {
	switch {
	case r.Command == "" || strings.Contains(r.Command, "\x00"):
		return apierror.New(apierror.Invalid, "invalid_command", "command is empty or has NUL in it")
	case strings.Contains(r.Workdir, "\x00"):
		return apierror.New(apierror.Invalid, "workdir_invalid", "workdir has NUL in it")
	case r.TimeoutMS < 0 || r.TimeoutMS > int64(maxTimeout/time.Millisecond):
		return apierror.New(apierror.Invalid, "invalid_timeout", "timeout_ms is negative or beyond a year")
	case r.OutputLimit < 0:
		return apierror.New(apierror.Invalid, "invalid_output_limit", "output_limit is negative")
	case r.PTY != nil && r.Separate:
		return apierror.New(apierror.Invalid, "invalid_separate", "a terminal has one output only")
	}
	return nil
}

const maxTimeout = 366 * 24 * time.Hour

func outputLimit(r poddapi.RunRequest) int64 {
	if r.OutputLimit == 0 {
		return poddapi.MaxOutput
	}
	return min(r.OutputLimit, poddapi.MaxOutput)
}
