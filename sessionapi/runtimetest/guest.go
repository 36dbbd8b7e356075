package runtimetest

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/sessionapi"
)

// Guest runs commands in one started sandbox.
type Guest struct {
	podd *poddapi.Client
}

// Start starts spec and fails t if that fails. The sandbox is deleted when t
// ends.
func Start(t *testing.T, rt sessionapi.Runtime, spec sessionapi.Spec) (Guest, sessionapi.Handle) {
	t.Helper()
	DeleteAfter(t, rt, spec.ID)
	h, err := rt.Start(t.Context(), spec)
	if err != nil {
		t.Fatalf("start incarnation %d: %v", spec.Incarnation, err)
	}
	return Dial(rt, h, spec.FullToken), h
}

// DeleteAfter deletes the sandbox when t ends.
func DeleteAfter(t *testing.T, rt sessionapi.Runtime, id session.ID) {
	t.Helper()
	t.Cleanup(func() {
		if err := rt.Delete(context.Background(), id); err != nil { // t's own context has ended
			t.Errorf("delete: %v", err)
		}
	})
}

// Dial gives the Guest behind a handle. Unix socket endpoints are looked for
// in the runtime's SocketDir.
func Dial(rt sessionapi.Runtime, h sessionapi.Handle, token string) Guest {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if rel, ok := h.Endpoint.Socket(); ok {
				dir := rt.(interface{ SocketDir() string }).SocketDir()
				return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, rel))
			}
			return new(net.Dialer).DialContext(ctx, "tcp", string(h.Endpoint))
		},
	}
	return Guest{poddapi.NewClient(transport, token)}
}

// Health asks podd whether it is up.
func (g Guest) Health(ctx context.Context) error {
	_, err := g.podd.Health(ctx)
	return err
}

// TryAs runs a shell command as uid and gives its output and exit code.
func (g Guest) TryAs(ctx context.Context, uid uint32, command string) (output string, code int, err error) {
	gid := uid
	resp, err := g.podd.Run(ctx, poddapi.RunRequest{Command: command, UID: &uid, GID: &gid})
	if err != nil {
		return "", 0, err
	}
	if resp.ExitCode == nil {
		return resp.Output, -1, nil
	}
	return resp.Output, *resp.ExitCode, nil
}

// Run runs a command as the guest user and gives its output. It fails t if the
// command does.
func (g Guest) Run(t *testing.T, command string) string {
	t.Helper()
	return g.run(t, poddapi.GuestUID, command)
}

// RunRoot is Run as root of the guest.
func (g Guest) RunRoot(t *testing.T, command string) string {
	t.Helper()
	return g.run(t, 0, command)
}

// Fails reports whether a command fails as the guest user.
func (g Guest) Fails(t *testing.T, command string) bool {
	t.Helper()
	return g.fails(t, poddapi.GuestUID, command)
}

// FailsRoot reports whether a command fails as root of the guest.
func (g Guest) FailsRoot(t *testing.T, command string) bool {
	t.Helper()
	return g.fails(t, 0, command)
}

func (g Guest) run(t *testing.T, uid uint32, command string) string {
	t.Helper()
	out, code, err := g.TryAs(t.Context(), uid, command)
	if err != nil || code != 0 {
		t.Fatalf("%s: exit code %d, %v: %s", command, code, err, out)
	}
	return out
}

func (g Guest) fails(t *testing.T, uid uint32, command string) bool {
	t.Helper()
	_, code, err := g.TryAs(t.Context(), uid, command)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return code != 0
}
