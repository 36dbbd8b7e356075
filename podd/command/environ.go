package command

import (
	"strings"

	"github.com/cubeplexai/cubepod/internal/apierror"
)

// marker is the variable by which a command's processes are found again, also
// those that left its session.
const marker = "CUBEPOD_COMMAND"

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environ is the whole environment of a command. Nothing of podd's own is in
// it.
func environ(id Identity, mark string, terminal bool, extra map[string]string) ([]string, error) {
	env := make([]string, 0, len(extra)+8)
	add := func(key, value string) {
		if _, ok := extra[key]; !ok && value != "" {
			env = append(env, key+"="+value)
		}
	}
	add("PATH", defaultPath)
	add("HOME", id.home)
	add("USER", id.name)
	add("LOGNAME", id.name)
	add("SHELL", id.shell)
	add("LANG", "C.UTF-8")
	if terminal {
		add("TERM", "xterm-256color")
	}
	for key, value := range extra {
		if key == "" || strings.ContainsAny(key, "=\x00") || strings.Contains(value, "\x00") {
			return nil, apierror.New(apierror.Invalid, "invalid_envs", "an environment name is empty or has '=' or NUL, or the value of %q has NUL", key)
		}
		if key != marker {
			env = append(env, key+"="+value)
		}
	}
	return append(env, marker+"="+mark), nil
}
