package command_test

import (
	"context"
	"io"
	"log"
	"strings"
	"testing"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/podd/command"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	// As podd does, so that orphans are this process's children.
	unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	goleak.VerifyTestMain(m)
}

// open returns a manager whose state is in dir.
func open(t *testing.T, dir string) *command.Manager {
	t.Helper()
	m, err := command.Open(command.Options{StateDir: dir, Workdir: "/", Log: log.New(io.Discard, "", 0)})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// manager returns a manager that ends with the test.
func manager(t *testing.T) *command.Manager {
	t.Helper()
	m := open(t, t.TempDir())
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func start(t *testing.T, m *command.Manager, r poddapi.RunRequest) *command.Command {
	t.Helper()
	c, started, err := m.Run(r)
	if err != nil {
		t.Fatalf("run %.80q: %v", r.Command, err)
	}
	if started.ID != c.ID() || started.PID <= 0 {
		t.Fatalf("got %+v of %s", started, c.ID())
	}
	return c
}

// run runs to the end and gives the output.
func run(t *testing.T, m *command.Manager, r poddapi.RunRequest) (poddapi.Status, string) {
	t.Helper()
	c := start(t, m, r)
	<-c.Done()
	return c.Status(), all(t, c)
}

func all(t *testing.T, c *command.Command) string {
	t.Helper()
	var b strings.Builder
	for at := int64(0); ; {
		p, from, err := c.Read(at, 1<<20)
		if err != nil || from != at {
			t.Fatalf("read at %d: from %d, %v", at, from, err)
		}
		if len(p) == 0 {
			return b.String()
		}
		b.Write(p)
		at += int64(len(p))
	}
}

func exit(s poddapi.Status) int {
	if s.ExitCode == nil {
		return -1
	}
	return *s.ExitCode
}

func code(err error) string { return apierror.From(err).WireCode() }

// await waits until the output of c has s in it.
func await(t *testing.T, c *command.Command, s string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !strings.Contains(all(t, c), s) {
		if ctx.Err() != nil {
			t.Fatalf("no %q in %q", s, all(t, c))
		}
		c.Wait(ctx, c.Status().Cursor)
	}
}

func ptr[T any](v T) *T { return &v }
