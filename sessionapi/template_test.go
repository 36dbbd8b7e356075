package sessionapi_test

import (
	"os"
	"path/filepath"
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
		"memory without a unit": {"web: {memory: 512}\n", nil},
		"too little memory":     {"web: {memory: 1MiB}\n", nil},
		"negative limit":        {"web: {cpus: -1}\n", nil},
		"bad variable":          {"web: {env: {\"A B\": c}}\n", nil},
		"empty":                 {"", nil},
		"misspelt key":          {"web:\n  dektop: true\n", nil},
		"bad name":              {"../web: {}\n", nil},
		"wrong type":            {"web:\n  desktop: [1]\n", nil},
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

func TestDependencies(t *testing.T) {
	testutil.ForbidImports(t, map[string]string{
		"github.com/redis/go-redis/v9":                        "the store is an interface here",
		"github.com/caddyserver/caddy/v2":                     "the edge is a program of its own",
		"github.com/cubeplexai/cubepod/sessionapi/local":      "runtimes know the API, not the other way round",
		"github.com/cubeplexai/cubepod/sessionapi/redisstore": "stores know the API, not the other way round",
	})
}
