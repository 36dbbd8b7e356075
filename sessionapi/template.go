package sessionapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Template is a kind of sandbox that callers ask for by name. The local runtime
// knows Desktop only.
type Template struct {
	Name string
	// Image is the container image.
	Image string
	// Desktop says that the sandbox has the desktop stack. Its memory, where it
	// is limited, is 1 GiB at least.
	Desktop bool
	// ContainerRuntime runs the container, such as "runsc" or "kata"; the
	// server's default when empty.
	ContainerRuntime string
	// Memory in bytes, CPUs, and processes are limits; 0 means no limit, and for
	// PIDs the runtime's.
	Memory int64
	CPUs   float64
	PIDs   int64
	// Warm is how many sandboxes are kept ready for creates.
	Warm int
	// Env are variables of every sandbox; a caller's own win.
	Env map[string]string
}

// BuiltinTemplates are the templates of a server that was given no others.
func BuiltinTemplates() map[string]Template {
	return map[string]Template{
		"base":    {Name: "base", Image: "cubepod/base:dev", Memory: 2 << 30},
		"desktop": {Name: "desktop", Image: "cubepod/desktop:dev", Memory: 4 << 30, Desktop: true},
	}
}

var templatePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// LoadTemplates reads a YAML file of templates by name. All keys may be left
// out, the image where the runtime has no images:
//
//	desktop:
//	  image: registry.example.com/desktop:2026-11
//	  desktop: true    # needs 1GiB of memory at least
//	  memory: 4GiB     # B, KiB, MiB or GiB; no limit when left out
//	  cpus: 2
//	  pids: 2000
//	  runtime: runsc   # what runs the container
//	  warm: 2          # sandboxes kept ready
//	  env:
//	    LANG: de_DE.UTF-8
func LoadTemplates(path string) (map[string]Template, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read templates: %w", err)
	}
	out, err := parseTemplates(data)
	if err != nil {
		return nil, fmt.Errorf("templates %s: %w", path, err)
	}
	return out, nil
}

func parseTemplates(data []byte) (map[string]Template, error) {
	var file map[string]struct {
		Image   string            `yaml:"image"`
		Desktop bool              `yaml:"desktop"`
		Memory  string            `yaml:"memory"`
		CPUs    float64           `yaml:"cpus"`
		PIDs    int64             `yaml:"pids"`
		Runtime string            `yaml:"runtime"`
		Warm    int               `yaml:"warm"`
		Env     map[string]string `yaml:"env"`
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true) // a misspelt limit must not be no limit
	if err := dec.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(file) == 0 {
		return nil, errors.New("no template in it")
	}
	out := map[string]Template{}
	for name, t := range file {
		if !templatePattern.MatchString(name) {
			return nil, fmt.Errorf("%q is no name for a template", name)
		}
		memory, err := parseMemory(t.Memory)
		if err != nil {
			return nil, fmt.Errorf("%s: memory: %w", name, err)
		}
		if t.Desktop && memory != 0 && memory < minDesktopMemory {
			return nil, fmt.Errorf("%s: memory: %s is too little for a desktop, which needs 1GiB at least", name, t.Memory)
		}
		if t.CPUs < 0 || t.PIDs < 0 || t.Warm < 0 {
			return nil, fmt.Errorf("%s: a limit is no negative number", name)
		}
		if err := checkEnvs(t.Env); err != nil {
			return nil, fmt.Errorf("%s: env: %w", name, err)
		}
		out[name] = Template{
			Name: name, Image: t.Image, Desktop: t.Desktop, ContainerRuntime: t.Runtime,
			Memory: memory, CPUs: t.CPUs, PIDs: t.PIDs, Warm: t.Warm, Env: t.Env,
		}
	}
	return out, nil
}

const (
	// minMemory is what a sandbox needs for podd alone.
	minMemory = 32 << 20
	// minDesktopMemory is what Chromium needs for a page or two, and the rest
	// of the desktop. With less the kernel ends a tab, or the browser, at the
	// first heavy page.
	minDesktopMemory = 1 << 30
)

var memoryPattern = regexp.MustCompile(`^([1-9][0-9]{0,9}) ?(B|KiB|MiB|GiB)$`)

func parseMemory(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	m := memoryPattern.FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("%q is not written like 512MiB or 2GiB", s)
	}
	n, _ := strconv.ParseInt(m[1], 10, 64)
	n *= map[string]int64{"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[m[2]]
	if n < minMemory || n > 1<<44 {
		return 0, fmt.Errorf("%s is not between 32MiB and 16384GiB", s)
	}
	return n, nil
}
