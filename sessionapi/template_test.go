package sessionapi_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi"
)

func TestLoadTemplates(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want map[string]sessionapi.Template
	}{
		"two": {"web:\n  desktop: true\nsmall: {}\n", map[string]sessionapi.Template{"web": {Name: "web", Desktop: true}, "small": {Name: "small"}}},
		"all of it": {"box:\n  image: example.com/box:1\n  memory: 512MiB\n  cpus: 1.5\n  pids: 100\n  runtime: runsc\n  warm: 3\n  env: {A: b}\n", map[string]sessionapi.Template{"box": {
			Name: "box", Image: "example.com/box:1", Memory: 512 << 20, CPUs: 1.5, PIDs: 100, ContainerRuntime: "runsc", Warm: 3, Env: map[string]string{"A": "b"}}}},
		"just enough for a desktop": {"web: {desktop: true, memory: 1024MiB}\n", map[string]sessionapi.Template{"web": {Name: "web", Desktop: true, Memory: 1 << 30}}},
		"too little for a desktop":  {"web: {desktop: true, memory: 1023MiB}\n", nil},
		"memory without a unit":     {"web: {memory: 512}\n", nil},
		"too little memory":         {"web: {memory: 1MiB}\n", nil},
		"negative limit":            {"web: {cpus: -1}\n", nil},
		"bad variable":              {"web: {env: {\"A B\": c}}\n", nil},
		"empty":                     {"", nil},
		"misspelt key":              {"web:\n  dektop: true\n", nil},
		"bad name":                  {"../web: {}\n", nil},
		"wrong type":                {"web:\n  desktop: [1]\n", nil},
	} {
		path := filepath.Join(t.TempDir(), "templates.yaml")
		if err := os.WriteFile(path, []byte(c.in), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := sessionapi.LoadTemplates(path)
		if (err == nil) != (c.want != nil) {
			t.Errorf("%s: got %v", name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A desktop in less than 1 GiB does not end well; who asks for that is told.
func TestDesktopMemory(t *testing.T) {
	for name, template := range sessionapi.BuiltinTemplates() {
		if template.Desktop && template.Memory != 0 && template.Memory < 1<<30 {
			t.Errorf("%s has %d bytes", name, template.Memory)
		}
	}
	path := filepath.Join(t.TempDir(), "templates.yaml")
	if err := os.WriteFile(path, []byte("small: {desktop: true, memory: 512MiB}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := sessionapi.LoadTemplates(path)
	for _, want := range []string{path, "small", "512MiB", "1GiB"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

func TestDependencies(t *testing.T) {
	testutil.ForbidImports(t, map[string]string{
		"github.com/redis/go-redis/v9":                        "the store is an interface here",
		"github.com/caddyserver/caddy/v2":                     "the edge is a program of its own",
		"github.com/cubeplexai/cubepod/sessionapi/local":      "runtimes know the API, not the other way round",
		"github.com/cubeplexai/cubepod/sessionapi/redisstore": "stores know the API, not the other way round",
	})
}
