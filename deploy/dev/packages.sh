#!/bin/sh
# Installs the Debian or Ubuntu packages that CubePod needs on this machine.
# usage: packages.sh run|test
# It says what it will do before it does it, and does nothing when all is there.
set -eu

run='redis-server bubblewrap passt xvfb openbox x11vnc x11-xserver-utils novnc libjs-xterm node-xterm fonts-dejavu-core ca-certificates'
case ${1:-} in
run) want=$run ;;
test)
	want="$run gcc libc6-dev x11-utils iproute2"
	# For the tests with other people's clients. A Node from elsewhere has its own npm.
	command -v npm >/dev/null || want="$want nodejs npm"
	;;
*) echo "usage: $0 run|test" >&2; exit 2 ;;
esac

. /etc/os-release
case "$ID ${ID_LIKE:-}" in
*ubuntu*) browser= ;; # its chromium package is a snap, which runs in no sandbox
*debian*) browser=chromium ;;
*)
	echo "This is $PRETTY_NAME. CubePod's set-up knows Debian and Ubuntu; elsewhere install by hand what provides: $want and Chromium." >&2
	exit 0 ;;
esac

missing=
for p in $want $browser; do
	dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done

sudo=
[ "$(id -u)" = 0 ] || sudo=sudo

if [ -n "$missing" ]; then
	echo "Installing these packages with ${sudo:+sudo }apt-get:$missing"
	case $missing in *redis-server*)
		echo "(redis-server's package starts a server of its own on 127.0.0.1:6379; CubePod does not use that one.)" ;;
	esac
	if ! $sudo apt-get install -y --no-install-recommends $missing; then
		echo "Refreshing the package lists and trying once more"
		$sudo apt-get update
		$sudo apt-get install -y --no-install-recommends $missing
	fi
fi

# Ubuntu: Playwright's build of Chromium, found by the desktop under /opt/cubepod/browsers.
if [ -z "$browser" ] && ! ls /opt/cubepod/browsers/chromium-*/chrome-linux*/chrome >/dev/null 2>&1 && ! [ -x /usr/bin/google-chrome ]; then
	echo "Ubuntu's chromium is a snap and cannot run in a sandbox: installing Playwright's Chromium into /opt/cubepod/browsers"
	command -v npx >/dev/null || $sudo apt-get install -y --no-install-recommends nodejs npm
	$sudo env PLAYWRIGHT_BROWSERS_PATH=/opt/cubepod/browsers npx --yes playwright install --with-deps --no-shell chromium
fi
