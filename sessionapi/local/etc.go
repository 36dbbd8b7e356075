package local

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/internal/session"
)

// hostEtc are the patterns of what a sandbox sees of the host's /etc. What may
// hold a secret (shadow, ssh, ssl/private, apt, pip.conf, npmrc, gitconfig) is
// not among them.
var hostEtc = []string{
	"alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d",
	"os-release", "debian_version", "lsb-release",
	"localtime", "timezone", "locale.alias", "terminfo", "inputrc", "shells", "login.defs",
	"ssl/certs", "ssl/openssl.cnf", "ca-certificates", "ca-certificates.conf", "pki/tls/certs", "pki/ca-trust",
	"protocols", "services", "host.conf", "gai.conf",
	"mime.types", "mailcap", "magic", "magic.mime",
	"fonts", "X11", "xdg", "gtk-2.0", "gtk-3.0", "gtk-4.0", "dconf", "dbus-1", "drirc", "glvnd", "vulkan", "OpenCL",
	"chromium.d", "papersize", "ghostscript", "ImageMagick-*",
	"python3", "python3.*", "perl", "java-*", "vim", "nanorc", "bash_completion.d",
}

// generatedEtc are the files of /etc that each sandbox has its own of.
func generatedEtc(id session.ID, hostResolv string, offline bool) map[string]string {
	machine := sha256.Sum256([]byte("cubepod machine-id " + id))
	return map[string]string{
		"passwd": "root:x:0:0:root:/root:/bin/bash\n" +
			fmt.Sprintf("cubeplex:x:%d:%d:CubePod:/home/cubeplex:/bin/bash\n", poddapi.GuestUID, poddapi.GuestGID) +
			"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"group": "root:x:0:\ntty:x:5:\n" +
			fmt.Sprintf("cubeplex:x:%d:\n", poddapi.GuestGID) +
			"nogroup:x:65534:\n",
		"hostname": string(id) + "\n",
		"hosts": "127.0.0.1\tlocalhost " + string(id) + "\n" + // both families, or the other one is asked of DNS
			"::1\tlocalhost ip6-localhost ip6-loopback " + string(id) + "\n",
		"resolv.conf": resolvConf(hostResolv, offline),
		"nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n" +
			"protocols: files\nservices: files\nethers: files\nrpc: files\n",
		"machine-id":  hex.EncodeToString(machine[:16]) + "\n",
		"profile":     profile,
		"bash.bashrc": bashrc,
	}
}

const (
	guestPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// sourceEnv gives interactive shells the terminal's environment.
	sourceEnv = "[ ! -r " + poddapi.EnvFile + " ] || . " + poddapi.EnvFile + "\n"
	bashrc    = "case $- in *i*) ;; *) return ;; esac\n" +
		"PS1='\\w\\$ '\n" +
		"shopt -s checkwinsize\n" +
		sourceEnv
	profile = "PATH=" + guestPath + "\n" +
		"export PATH\n" +
		"case $- in *i*) ;; *) return ;; esac\n" +
		"if [ -n \"$BASH_VERSION\" ]; then . /etc/bash.bashrc; return; fi\n" +
		sourceEnv
)

// resolvConf gives the guest's resolv.conf for the host's. A resolver on the
// host's loopback, such as systemd-resolved, is reached by way of pasta.
func resolvConf(host string, offline bool) string {
	if offline {
		return "# this sandbox is offline\n"
	}
	var out strings.Builder
	if onlyLoopback(host) {
		out.WriteString("nameserver " + dnsForward + "\n")
	}
	for line := range strings.Lines(host) {
		switch f := strings.Fields(line); {
		case len(f) < 2:
		case f[0] == "nameserver" && !loopback(f[1]),
			f[0] == "search", f[0] == "domain", f[0] == "options":
			out.WriteString(strings.Join(f, " ") + "\n")
		}
	}
	return out.String()
}

// onlyLoopback reports whether a host with this resolv.conf asks resolvers on
// its own loopback only. No resolver at all means one on loopback, see
// resolv.conf(5).
func onlyLoopback(conf string) bool {
	for line := range strings.Lines(conf) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "nameserver" && !loopback(f[1]) {
			return false
		}
	}
	return true
}

func loopback(addr string) bool {
	a, err := netip.ParseAddr(addr)
	return err == nil && a.IsLoopback()
}

// writeEtc makes dir with the generated files in it.
func writeEtc(dir string, files map[string]string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}
