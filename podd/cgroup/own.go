package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// own finds the directory of this process's group in the hierarchy of a kind,
// "cgroup2" or "cgroup", and for the latter of a controller.
func own(kind, controller string) (string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	at, err := membership(controller)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		root, point, ok := parseMount(line, kind, controller)
		if !ok {
			continue
		}
		if rel, err := filepath.Rel(root, at); err == nil && filepath.IsLocal(rel) {
			return filepath.Join(point, rel), nil
		}
	}
	return "", errors.New("no such control groups are mounted")
}

// membership reads the path of this process's group in the hierarchy of a
// controller, or in the v2 one, whose controller has no name.
func membership(controller string) (string, error) {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		// hierarchy:controllers:path
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) == 3 && slices.Contains(strings.Split(f[1], ","), controller) {
			return f[2], nil
		}
	}
	return "", errors.New("this process is in no such control group")
}

// parseMount reads a line of mountinfo and gives the root and the mount point
// when it is a hierarchy of that kind and controller.
func parseMount(line, kind, controller string) (root, point string, ok bool) {
	// id parent device root point options [optional…] - kind source options
	before, after, found := strings.Cut(line, " - ")
	f, rest := strings.Fields(before), strings.Fields(after)
	if !found || len(f) < 5 || len(rest) < 3 || rest[0] != kind {
		return "", "", false
	}
	if controller != "" && !slices.Contains(strings.Split(rest[2], ","), controller) {
		return "", "", false
	}
	return f[3], f[4], true
}
