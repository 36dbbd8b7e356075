package testutil

import (
	"testing"
	"time"
)

// Patience bounds every wait of a test for another process. It is long, since
// machines are shared; only a test that fails waits for it.
const Patience = 60 * time.Second

// Eventually calls ok until it says true, and fails t when it does not within
// [Patience]. It is for what happens in another process; inside one, wait on a
// channel.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(Patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", Patience, what)
		}
	}
}
