package docker_test

import (
	"cmp"
	"strings"
	"testing"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi"
	"github.com/cubeplexai/cubepod/sessionapi/docker"
	"github.com/cubeplexai/cubepod/sessionapi/runtimetest"
)

func inspect(t *testing.T, rt sessionapi.Runtime, id session.ID) sessionapi.Status {
	t.Helper()
	st, err := rt.Inspect(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestStopKeepsTheContainer(t *testing.T) {
	rt := newRuntime(t, docker.Options{GuestDir: guestDir(t)})
	spec := runtimetest.NewSpec()
	g, h := runtimetest.Start(t, rt, spec)
	g.RunRoot(t, "echo installed >/usr/local/bin/tool; touch /tmp/t /run/cubepod/r")
	if err := rt.Stop(t.Context(), spec.ID); err != nil {
		t.Fatal(err)
	}
	if got := engine(t, "inspect", "-f", "{{.State.Status}} {{.State.Pid}}", h.Ref); got != "exited 0" {
		t.Errorf("stopped: %s", got)
	}
	g, again := runtimetest.Start(t, rt, runtimetest.Incarnation(spec.ID, 2))
	if again.Ref != h.Ref {
		t.Error("it is another container")
	}
	if got := g.RunRoot(t, "cat /usr/local/bin/tool; ls /tmp; ls /run/cubepod/r 2>/dev/null || :"); got != "installed\n" {
		t.Errorf("got %q", got)
	}
}

func TestRemovedContainerIsMadeAnew(t *testing.T) {
	rt := newRuntime(t, docker.Options{GuestDir: guestDir(t)})
	spec := runtimetest.NewSpec()
	g, h := runtimetest.Start(t, rt, spec)
	g.Run(t, "echo kept >/workspace/f; echo kept >/home/cubeplex/f; chmod 750 /home/cubeplex/f")
	engine(t, "rm", "-f", h.Ref)
	if st := inspect(t, rt, spec.ID); st != (sessionapi.Status{Removed: true}) {
		t.Errorf("removed: %+v", st)
	}
	g, _ = runtimetest.Start(t, rt, runtimetest.Incarnation(spec.ID, 2))
	if got := g.Run(t, "cat /workspace/f /home/cubeplex/f; stat -c %a,%U /home/cubeplex/f"); got != "kept\nkept\n750,cubeplex\n" {
		t.Errorf("got %q", got)
	}
}

func TestDeleteLeavesNothing(t *testing.T) {
	rt := newRuntime(t, docker.Options{GuestDir: guestDir(t)})
	spec := runtimetest.NewSpec()
	runtimetest.Start(t, rt, spec)
	left := func() string {
		return engine(t, "ps", "-aq", "--filter", "name="+string(spec.ID)) + engine(t, "volume", "ls", "-q", "--filter", "name="+string(spec.ID))
	}
	if left() == "" {
		t.Error("the test's premise is gone: nothing is found")
	}
	if err := rt.Delete(t.Context(), spec.ID); err != nil {
		t.Fatal(err)
	}
	if got := left(); got != "" {
		t.Errorf("left: %s", got)
	}
}

func TestNoSuchImage(t *testing.T) {
	rt := newRuntime(t, docker.Options{GuestDir: guestDir(t)})
	spec := runtimetest.NewSpec()
	spec.Template.Image = "cubepod/no-such-image:never"
	_, err := rt.Start(t.Context(), spec)
	if e := apierror.From(err); e.Code != "runtime_unavailable" || !strings.Contains(e.Detail, spec.Template.Image) {
		t.Errorf("got %v", err)
	}
	if _, err := rt.Inspect(t.Context(), spec.ID); apierror.KindOf(err) != apierror.NotFound {
		t.Errorf("it left something: %v", err)
	}
}

// TestContainerRuntimeIsSelectable shows that both settings reach the engine, by
// names it does not know. The template's wins.
func TestContainerRuntimeIsSelectable(t *testing.T) {
	rt := newRuntime(t, docker.Options{GuestDir: guestDir(t), ContainerRuntime: "no-such-option"})
	for _, template := range []string{"", "no-such-template"} {
		spec := runtimetest.NewSpec()
		runtimetest.DeleteAfter(t, rt, spec.ID)
		spec.Template.ContainerRuntime = template
		want := cmp.Or(template, "no-such-option")
		if _, err := rt.Start(t.Context(), spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s in it", err, want)
		}
		if _, err := rt.Inspect(t.Context(), spec.ID); apierror.KindOf(err) != apierror.NotFound {
			t.Errorf("it left something: %v", err)
		}
	}
}

// TestGuestProgramsOfTwo lets several runtimes meet with no volume of the
// guest's programs.
func TestGuestProgramsOfTwo(t *testing.T) {
	dir := guestDir(t)
	var specs []sessionapi.Spec
	done := make(chan error)
	for range 3 {
		rt, spec := newRuntime(t, docker.Options{GuestDir: dir}), runtimetest.NewSpec()
		runtimetest.DeleteAfter(t, rt, spec.ID)
		specs = append(specs, spec)
		go func() {
			_, err := rt.Start(t.Context(), spec)
			done <- err
		}()
	}
	for range specs {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	volumes := map[string]bool{}
	for _, spec := range specs {
		volumes[engine(t, "inspect", "-f", `{{range .Mounts}}{{if eq .Destination "/opt/cubepod/bin"}}{{.Name}} {{.RW}}{{end}}{{end}}`,
			"cubepod-"+string(spec.ID)+"-1")] = true
	}
	if len(volumes) != 1 {
		t.Errorf("several volumes: %v", volumes)
	}
	for v := range volumes {
		if !strings.HasSuffix(v, " false") {
			t.Errorf("it can be written: %s", v)
		}
	}
}

func TestWatch(t *testing.T) {
	rt := newRuntime(t, docker.Options{GuestDir: guestDir(t)})
	spec := runtimetest.NewSpec()
	_, h := runtimetest.Start(t, rt, spec)
	news, done := make(chan session.ID, 100), make(chan struct{})
	ctx := t.Context()
	go func() {
		defer close(done)
		rt.Watch(ctx, func(id session.ID) {
			select {
			case news <- id:
			default:
			}
		})
	}()
	t.Cleanup(func() { <-done })
	hears := func(want session.ID) {
		t.Helper()
		testutil.Eventually(t, "there is news of "+string(want), func() bool {
			select {
			case id := <-news:
				return id == want
			default:
				return false
			}
		})
	}
	hears("") // it watches
	engine(t, "kill", h.Ref)
	hears(spec.ID)
}
