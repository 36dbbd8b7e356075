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

// procReadOnly are the parts of /proc through which root, even without
// capabilities, changes the host: /proc/sys/kernel/core_pattern names a program
// that the host's kernel runs. bwrap covers some of them, but not sys.
var procReadOnly = []string{"sys", "sysrq-trigger", "fs", "irq", "bus", "acpi", "scsi"}

// argList builds bwrap's flags.
type argList struct {
	args []string
	made map[string]bool
}

func (a *argList) add(args ...string) { a.args = append(a.args, args...) }

// parents makes the directories above path. Those that bwrap makes by itself
// are closed to the guest user.
func (a *argList) parents(path string) {
	dir := filepath.Dir(path)
	if dir == "/" || a.made[dir] {
		return
	}
	a.parents(dir)
	a.dir("0755", dir)
}

func (a *argList) dir(mode, path string) {
	a.made[path] = true
	a.add("--perms", mode, "--dir", path)
}

func (a *argList) tmpfs(mode, path string) {
	a.parents(path)
	a.made[path] = true
	a.add("--perms", mode, "--tmpfs", path)
}

func (a *argList) bind(from, path string) {
	a.parents(path)
	a.made[path] = true
	a.add("--bind", from, path)
}

// readOnly shows from at path. It leaves out what is not there.
func (a *argList) readOnly(from, path string) {
	if _, err := os.Stat(from); err != nil {
		return
	}
	a.parents(path)
	a.made[path] = true
	a.add("--ro-bind-try", from, path) // it may go meanwhile
}

// bwrapArgs are bwrap's flags for a sandbox, up to the command.
func bwrapArgs(spec sessionapi.Spec, offline bool, dirs guestDirs, etcFiles map[string]string) []string {
	a := &argList{args: namespaceArgs(offline), made: make(map[string]bool)}
	a.add("--hostname", string(spec.ID))

	a.readOnly("/usr", "/usr")
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		if target, err := os.Readlink(dir); err == nil {
			a.add("--symlink", target, dir)
		} else {
			a.readOnly(dir, dir)
		}
	}
	a.add("--proc", "/proc", "--dev", "/dev")
	a.made["/proc"], a.made["/dev"] = true, true
	for _, name := range procReadOnly {
		a.readOnly("/proc/"+name, "/proc/"+name)
	}

	a.tmpfs("1777", "/dev/shm")
	a.tmpfs("1777", "/tmp")
	a.dir("1777", "/tmp/.X11-unix")
	a.dir("1777", "/tmp/.ICE-unix")
	a.tmpfs("0755", "/run")
	a.dir("0755", "/run/cubepod")
	a.bind(dirs.run, "/run/podd")
	a.tmpfs("0700", "/root")
	a.tmpfs("1777", "/var/tmp")
	a.add("--symlink", "/run", "/var/run")
	a.bind(dirs.podd, "/var/lib/podd")
	a.readOnly("/var/cache/fontconfig", "/var/cache/fontconfig") // or the first browser of each sandbox reads all fonts
	a.bind(dirs.home, "/home/cubeplex")
	a.bind(dirs.workspace, "/workspace")
	a.readOnly(dirs.bin, "/opt/cubepod/bin")

	for _, pattern := range hostEtc {
		found, _ := filepath.Glob("/etc/" + pattern) // the patterns are well-formed
		for _, path := range found {
			a.readOnly(path, path)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(etcFiles)) {
		a.readOnly(filepath.Join(dirs.etc, name), "/etc/"+name)
	}
	a.add("--symlink", "../proc/self/mounts", "/etc/mtab")
	if dirs.desktop != "" {
		a.readOnly(dirs.desktop, "/opt/cubepod/desktop")
		a.readOnly(filepath.Join(dirs.desktop, "policies"), "/etc/chromium/policies/managed")
	}
	// Last, or bwrap could make no mount points. What is mounted on / stays as
	// it is.
	a.add("--remount-ro", "/")

	a.add("--cap-drop", "ALL")
	for _, c := range capabilities {
		a.add("--cap-add", c)
	}
	a.add("--chdir", "/", "--")
	return a.args
}

// poddArgv starts podd in the guest.
func poddArgv() []string {
	return strings.Fields("/opt/cubepod/bin/podd --addr unix:/run/podd/podd.sock --token-file /run/podd/token" +
		" --state-dir /var/lib/podd --workdir /workspace")
}
