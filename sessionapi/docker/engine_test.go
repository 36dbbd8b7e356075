package docker_test

import (
	"strings"
	"testing"

	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi"
	"github.com/cubeplexai/cubepod/sessionapi/docker"
	"github.com/cubeplexai/cubepod/sessionapi/runtimetest"
)

// TestEngineRestart restarts an engine of the test's own.
func TestEngineRestart(t *testing.T) {
	if !onOwnHost(t) {
		return
	}
	e := runtimetest.StartEngine(t, runtimetest.Image)

	rt, err := docker.New(docker.Options{GuestDir: guestDir(t), Network: "cubepodown"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close() })
	var specs []sessionapi.Spec
	for range 3 {
		spec := runtimetest.NewSpec()
		runtimetest.Start(t, rt, spec)
		specs = append(specs, spec)
	}
	paused := specs[2]
	if err := rt.Stop(t.Context(), paused.ID); err != nil {
		t.Fatal(err)
	}
	e.Stop()
	if err := rt.Check(t.Context()); err == nil {
		t.Error("an engine that is down answers")
	}
	if _, err := rt.Inspect(t.Context(), specs[0].ID); err == nil || strings.Contains(err.Error(), "no sandbox") {
		t.Errorf("inspect without an engine: %v", err)
	}
	e.Start(t)
	for _, spec := range specs[:2] {
		testutil.Eventually(t, "the sandbox runs again", func() bool {
			st, err := rt.Inspect(t.Context(), spec.ID)
			return err == nil && st.Running && st.Incarnation == 1 &&
				runtimetest.Dial(rt, st.Handle, spec.FullToken).Health(t.Context()) == nil
		})
	}
	if st, err := rt.Inspect(t.Context(), paused.ID); err != nil || st.Running {
		t.Errorf("the stopped sandbox: %+v, %v", st, err)
	}
}
