#!/bin/sh
# Installs the Debian or Ubuntu packages that CubePod needs on this machine.
# usage: packages.sh SET…
#
#   build    what the programs are built from
#   redis    the embedded Redis
#   run      those, and what the local runtime's sandboxes run
#   test     run, and what the tests need
#   docker   a Docker engine, unless there is one, and what images are made with
#   compose  Docker Compose, unless there is one
#
# It says what it will do before it does it, and does nothing when all is there.
set -eu

build='novnc libjs-xterm node-xterm'
redis='redis-server'
run="$build $redis ca-certificates bubblewrap passt xvfb openbox x11vnc x11-xserver-utils fonts-dejavu-core"
want= browser= engine=
[ $# -gt 0 ] || set -- help
for set; do
	case $set in
	build) want="$want $build" ;;
	redis) want="$want $redis" ;;
	run) want="$want $run" browser=chromium ;;
	test)
		want="$want $run gcc libc6-dev x11-utils iproute2" browser=chromium
		# For the tests with other people's clients. A Node from elsewhere has its own npm.
		command -v npm >/dev/null || want="$want nodejs npm"
		;;
	docker)
		want="$want iptables debootstrap"
		# Docker's own packages and the distribution's do not go together.
		command -v dockerd >/dev/null || want="$want docker.io"
		engine=yes
		;;
	compose) docker compose version >/dev/null 2>&1 || want="$want docker-compose" ;;
	*) echo "usage: $0 build|redis|run|test|docker|compose …" >&2; exit 2 ;;
	esac
done

. /etc/os-release
case "$ID ${ID_LIKE:-}" in
*ubuntu*) snap=$browser browser= ;; # its chromium package is a snap, which runs in no sandbox
*debian*) snap= ;;
*)
	echo "This is $PRETTY_NAME. CubePod's set-up knows Debian and Ubuntu; elsewhere install by hand what provides:$want $browser." >&2
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

# In newer releases the docker command is a package by itself.
[ -z "$engine" ] || command -v docker >/dev/null || $sudo apt-get install -y --no-install-recommends docker-cli

# Ubuntu: Playwright's build of Chromium, found by the desktop under /opt/cubepod/browsers.
if [ -n "$snap" ] && ! ls /opt/cubepod/browsers/chromium-*/chrome-linux*/chrome >/dev/null 2>&1 && ! [ -x /usr/bin/google-chrome ]; then
	echo "Ubuntu's chromium is a snap and cannot run in a sandbox: installing Playwright's Chromium into /opt/cubepod/browsers"
	command -v npx >/dev/null || $sudo apt-get install -y --no-install-recommends nodejs npm
	# Playwright refuses Ubuntu 24.04's Node 18, so that one only fetches another.
	$sudo env PLAYWRIGHT_BROWSERS_PATH=/opt/cubepod/browsers npx --yes \
		--package "node-linux-$(node -p process.arch)@24" --package playwright@1 -- \
		playwright install --with-deps --no-shell chromium
fi
