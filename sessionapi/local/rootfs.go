package local

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cubeplexai/cubepod/sessionapi"
)

// guestDirs is where a sandbox' parts are on the host.
type guestDirs struct {
	workspace, home, podd string // kept
	run, etc              string // of one start
	bin                   string // holds podd
	desktop               string // empty without a desktop
}

// capabilities are what podd needs to start, watch and end the processes of
// any user, and to write their files. All else is dropped, and bubblewrap sets
// no_new_privs, so nothing in the sandbox ever gets more.
var capabilities = []string{
	"CAP_SETUID", "CAP_SETGID", "CAP_KILL",
	"CAP_CHOWN", "CAP_FOWNER", "CAP_DAC_OVERRIDE",
	"CAP_SYS_PTRACE", // reads /proc/<pid>/environ of another user's process
}

// namespaceArgs are the bwrap flags that decide about namespaces.
func namespaceArgs(offline bool) []string {
	args := []string{"--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"}
	if offline {
		args = append(args, "--unshare-net")
	}
	return args
}

// bwrapArgs are bwrap's flags for a sandbox, without the command.
func bwrapArgs(spec sessionapi.Spec, offline bool, dirs guestDirs, etcFiles map[string]string) []string {
	args := append(namespaceArgs(offline), "--hostname", string(spec.ID))
	add := func(a ...string) { args = append(args, a...) }

	add("--ro-bind", "/usr", "/usr")
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		switch fi, err := os.Lstat(dir); {
		case err != nil:
		case fi.Mode()&os.ModeSymlink != 0:
			if target, err := os.Readlink(dir); err == nil {
				add("--symlink", target, dir)
			}
		case fi.IsDir():
			add("--ro-bind", dir, dir)
		}
	}

	// bwrap binds the dangerous parts of /proc (sys, sysrq-trigger) read-only.
	add("--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm")
	add("--perms", "1777", "--tmpfs", "/tmp", "--perms", "1777", "--dir", "/tmp/.X11-unix", "--perms", "1777", "--dir", "/tmp/.ICE-unix")
	add("--perms", "0755", "--tmpfs", "/run", "--perms", "0755", "--dir", "/run/cubepod", "--bind", dirs.run, "/run/podd")
	add("--perms", "0700", "--tmpfs", "/root")
	add("--perms", "0755", "--dir", "/var", "--perms", "1777", "--tmpfs", "/var/tmp", "--symlink", "/run", "/var/run",
		"--ro-bind-try", "/var/cache/fontconfig", "/var/cache/fontconfig", // or the first browser of each sandbox reads all fonts
		"--perms", "0755", "--dir", "/var/lib", "--bind", dirs.podd, "/var/lib/podd")
	add("--perms", "0755", "--dir", "/home", "--bind", dirs.home, "/home/cubeplex", "--bind", dirs.workspace, "/workspace")
	add("--perms", "0755", "--dir", "/opt", "--perms", "0755", "--dir", "/opt/cubepod", "--ro-bind", dirs.bin, "/opt/cubepod/bin")
	add("--perms", "0755", "--dir", "/etc")
	for _, pattern := range hostEtc {
		found, _ := filepath.Glob("/etc/" + pattern) // the patterns are well-formed
		for _, path := range found {
			if _, err := os.Stat(path); err == nil { // not a dangling symlink
				add("--ro-bind-try", path, path)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(etcFiles)) {
		add("--ro-bind", filepath.Join(dirs.etc, name), "/etc/"+name)
	}
	add("--symlink", "../proc/self/mounts", "/etc/mtab")
	if dirs.desktop != "" {
		add("--ro-bind", dirs.desktop, "/opt/cubepod/desktop",
			"--ro-bind-try", filepath.Join(dirs.desktop, "policies"), "/etc/chromium/policies/managed")
	}
	// Last, or bwrap could make no mount points. What is mounted on / stays as
	// it is.
	add("--remount-ro", "/")

	add("--cap-drop", "ALL")
	for _, c := range capabilities {
		add("--cap-add", c)
	}
	return append(args, "--chdir", "/")
}

// poddArgv starts podd in the guest.
func poddArgv() []string {
	return strings.Fields("/opt/cubepod/bin/podd --addr unix:/run/podd/podd.sock --token-file /run/podd/token" +
		" --state-dir /var/lib/podd --workdir /workspace")
}
