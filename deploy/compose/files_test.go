// Package compose_test holds the files of this folder against the programs they
// configure, and runs them.
package compose_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"go.yaml.in/yaml/v3"

	_ "github.com/cubeplexai/cubepod/caddymodule"
	"github.com/cubeplexai/cubepod/internal/keyfile"
	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/sessionapi"
)

// root is the repository's root, seen from this package.
const root = "../.."

// service is what the tests look at in compose.yaml.
type service struct {
	Image       string            `yaml:"image"`
	Command     []string          `yaml:"command"`
	Environment map[string]string `yaml:"environment"`
	Volumes     []string          `yaml:"volumes"`
}

// readCompose reads compose.yaml as it is without a file .env.
func readCompose(t *testing.T) map[string]service {
	t.Helper()
	text, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`\$\{[A-Z_]+:-([^}]*)\}`).ReplaceAll(text, []byte("$1"))
	var file struct{ Services map[string]service }
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	return file.Services
}

// isAPI tells the replicas of the session API.
func isAPI(name string) bool { return strings.HasPrefix(name, "api-") }

func TestImages(t *testing.T) {
	for name, s := range readCompose(t) {
		built, ours := strings.CutPrefix(strings.TrimSuffix(s.Image, ":dev"), "cubepod/")
		if !ours {
			if name != "redis" {
				t.Errorf("%s: the image %s is not ours", name, s.Image)
			}
			continue
		}
		if _, err := os.Stat(filepath.Join(root, "images", built, "Dockerfile")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSettings(t *testing.T) {
	program := filepath.Join(t.TempDir(), "sessionapi")
	if out, err := exec.Command("go", "build", "-o", program, root+"/sessionapi/cmd/sessionapi").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for name, s := range readCompose(t) {
		if !isAPI(name) && name != "firewall" {
			continue
		}
		cmd := exec.Command(program, append(s.Command, "--help")...)
		cmd.Env = os.Environ()
		for k, v := range s.Environment {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
		help, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v: %s", name, err, help)
		}
		for k := range s.Environment {
			if !strings.Contains(string(help), "environment "+k+",") {
				t.Errorf("%s: the program knows no %s", name, k)
			}
		}
	}
	caddyfile, err := os.ReadFile("Caddyfile")
	if err != nil {
		t.Fatal(err)
	}
	edge := readCompose(t)["edge"]
	for k := range edge.Environment {
		if !strings.Contains(string(caddyfile), "{$"+k+":") {
			t.Errorf("edge: the Caddyfile knows no %s", k)
		}
	}
}

// TestMounts finds each file that a program is told of, in the folder as keys.sh
// leaves it.
func TestMounts(t *testing.T) {
	dir := copyFolder(t)
	paths := map[string][]string{"edge": {"/etc/caddy/Caddyfile", "/etc/cubepod/keys/panel", "/etc/cubepod/keys/tunnel"}}
	services := readCompose(t)
	for name, s := range services {
		for _, v := range s.Environment {
			if strings.HasPrefix(v, "/") {
				paths[name] = append(paths[name], v)
			}
		}
	}
	for name, list := range paths {
		for _, path := range list {
			found := slices.ContainsFunc(services[name].Volumes, func(v string) bool {
				part := strings.Split(v, ":")
				rest, ok := strings.CutPrefix(path, part[1])
				_, err := os.Stat(filepath.Join(dir, part[0], rest))
				return ok && strings.HasPrefix(part[0], "./") && err == nil
			})
			if !found {
				t.Errorf("%s: nothing is mounted that holds %s", name, path)
			}
		}
	}
}

func TestTemplates(t *testing.T) {
	templates, err := sessionapi.LoadTemplates("api/templates.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range sessionapi.BuiltinTemplates() {
		if got := templates[name]; got.Image != want.Image || got.Desktop != want.Desktop || got.Memory != want.Memory {
			t.Errorf("%s: got %+v, built in is %+v", name, got, want)
		}
	}
}

func TestCaddyfile(t *testing.T) {
	text, err := os.ReadFile("Caddyfile")
	if err != nil {
		t.Fatal(err)
	}
	doc, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt(text, map[string]any{"filename": "Caddyfile"})
	if err != nil || len(warnings) > 0 {
		t.Fatalf("adapt: %v, %v", err, warnings)
	}
	var config struct {
		Apps struct{ Cubepod json.RawMessage }
	}
	if err := json.Unmarshal(doc, &config); err != nil || config.Apps.Cubepod == nil {
		t.Fatalf("no app cubepod: %v\n%s", err, doc)
	}
	var want []string
	for name, s := range readCompose(t) {
		if isAPI(name) {
			want = append(want, s.Command[slices.Index(s.Command, "--listen")+1])
		}
	}
	slices.Sort(want)
	proxies := regexp.MustCompile(`reverse_proxy ((?:127\S+ )+)\{`).FindAllSubmatch(text, -1)
	if len(proxies) != 1 {
		t.Fatalf("%d proxies for the API, want 1", len(proxies))
	}
	if got := strings.Fields(string(proxies[0][1])); !slices.Equal(got, want) {
		t.Errorf("the edge asks %v, the replicas listen at %v", got, want)
	}
}

func TestKeys(t *testing.T) {
	dir := copyFolder(t)
	for _, name := range []string{"api/master", "api/tunnel", "api/panel", "edge/tunnel", "edge/panel"} {
		path := filepath.Join(dir, "keys", name)
		if keys, err := keyfile.Load(path); err != nil || len(keys) != 1 {
			t.Errorf("%s: %d keys, %v", name, len(keys), err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if _, err := sessionapi.LoadAPIKeys(filepath.Join(dir, "keys/api/api")); err != nil {
		t.Error(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, "keys/admin-key"))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(filepath.Join(dir, "keys.sh")).CombinedOutput(); err == nil || !strings.Contains(string(out), "already") {
		t.Errorf("a second time: %v: %s", err, out)
	}
	if after, _ := os.ReadFile(filepath.Join(dir, "keys/admin-key")); string(after) != string(before) {
		t.Error("the second time changed the keys")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "keys.*")); len(left) != 1 { // keys.sh
		t.Errorf("left: %v", left)
	}
}

// copyFolder copies this folder and makes the keys in it.
func copyFolder(t *testing.T) string {
	t.Helper()
	testutil.NeedRoot(t)
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "api"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"compose.yaml", "Caddyfile", "api/templates.yaml", "keys.sh"} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(filepath.Join(dir, "keys.sh")).CombinedOutput(); err != nil {
		t.Fatalf("keys.sh: %v\n%s", err, out)
	}
	return dir
}
