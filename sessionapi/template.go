package sessionapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// Template is a kind of sandbox that callers ask for by name. The local runtime
// knows Desktop only.
type Template struct {
	Name string
	// Image is the container image.
	Image string
	// Desktop says that the sandbox has the desktop stack.
	Desktop bool
	// ContainerRuntime runs the container, such as "runsc" or "kata"; the
	// server's default when empty.
	ContainerRuntime string
	// Memory in bytes, CPUs, and processes are limits; 0 means no limit, and for
	// PIDs the runtime's.
	Memory int64
	CPUs   float64
	PIDs   int64
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

// LoadTemplates reads a YAML file of templates by name:
//
//	desktop:
//	  desktop: true
//	base: {}
func LoadTemplates(path string) (map[string]Template, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read templates: %w", err)
	}
	var file map[string]struct {
		Desktop bool `yaml:"desktop"`
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true) // a misspelt limit must not be no limit
	if err := dec.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("templates %s: %w", path, err)
	}
	if len(file) == 0 {
		return nil, fmt.Errorf("templates %s: no template in it", path)
	}
	out := map[string]Template{}
	for name, t := range file {
		if !templatePattern.MatchString(name) {
			return nil, fmt.Errorf("templates %s: %q is no name for a template", path, name)
		}
		out[name] = Template{Name: name, Desktop: t.Desktop}
	}
	return out, nil
}
