package terminal

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// EnvFile is what podd writes a sandbox's environment to; every new shell
// reads it.
const EnvFile = "/run/cubepod/sandbox-env.sh"

// command builds the shell's command line from o. An interactive shell that is
// no login shell reads ~/.bashrc, and one file in its place may be named: ours
// reads the user's own and then the sandbox's environment. (Debian's bash
// reads /etc/bash.bashrc before either.)
func (o *Options) command() (*exec.Cmd, error) {
	argv := o.Command
	var rc *os.File
	if len(argv) == 0 {
		if _, err := os.Stat("/bin/bash"); err == nil {
			if rc, err = rcFile(o.EnvFile); err != nil {
				return nil, err
			}
			argv = []string{"/bin/bash", "--rcfile", "/dev/fd/3"}
		} else {
			argv = []string{"/bin/sh"}
		}
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = firstUsable(o.Dir, lookup(o.Env, "HOME"))
	cmd.Env = append(o.Env[:len(o.Env):len(o.Env)], "TERM=xterm-256color", "LANG=C.UTF-8", "ENV="+o.EnvFile)
	if rc != nil {
		cmd.ExtraFiles = []*os.File{rc}
	}
	return cmd, nil
}

// rcFile is the end of a pipe that holds the shell's start-up commands: no
// file that somebody could change, and nothing to clean up.
func rcFile(envFile string) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make the shell's rc file: %w", err)
	}
	defer w.Close()
	env := quote(envFile)
	// Far less than a pipe takes without a reader.
	_, err = fmt.Fprintf(w, "if [ -r ~/.bashrc ]; then . ~/.bashrc; fi\nif [ -r %s ]; then . %s; fi\nexec 3<&-\n", env, env)
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("write the shell's rc file: %w", err)
	}
	return r, nil
}

// quote makes s one word of a shell's line.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// lookup is the value of name in env, where the last one counts.
func lookup(env []string, name string) string {
	for _, v := range slices.Backward(env) {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// firstUsable is the first folder of dirs that can be entered, else the root.
func firstUsable(dirs ...string) string {
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err == nil && info.IsDir() && unix.Access(dir, unix.X_OK) == nil {
			return dir
		}
	}
	return "/"
}
