package local_test

import (
	"context"
	"syscall"
	"testing"

	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi/local"
	"github.com/cubeplexai/cubepod/sessionapi/runtimetest"
)

// TestWatch hears of a sandbox of its own that ends, and of one that an earlier
// program started.
func TestWatch(t *testing.T) {
	data, guestDir := dataDir(t), standIn(t)
	earlier := usable(t, open(t, local.Options{Data: data, GuestDir: guestDir}))
	old := runtimetest.NewSpec()
	runtimetest.Start(t, earlier, old)

	rt := open(t, local.Options{Data: data, GuestDir: guestDir})
	news, done := make(chan session.ID, 100), make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		defer close(done)
		rt.Watch(ctx, func(id session.ID) { news <- id })
	}()
	defer func() { stop(); <-done }()
	if got := <-news; got != "" {
		t.Errorf("at first: got %q", got)
	}
	own := runtimetest.NewSpec()
	g, _ := runtimetest.Start(t, rt, own)
	hears := func(want session.ID) {
		t.Helper()
		if got := <-news; got != want { // or the test ends by its own timeout
			t.Errorf("got %q, want %q", got, want)
		}
		if isRunning(t, rt, want) {
			t.Error("it runs when it is told of")
		}
	}
	_, _, _ = g.TryAs(t.Context(), 0, "kill -9 $PPID") // podd; the answer dies with it
	hears(own.ID)
	if err := syscall.Kill(supervisorOf(t, data, old.ID), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	hears(old.ID)
	testutil.Eventually(t, "no process is left", func() bool { return traces(t, data) == nil })
}
