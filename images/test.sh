#!/bin/sh
# Tests the desktop image: test_ctl.sh inside it, and the supervisor's own Go
# tests, each in a fresh container, with the programs that the image has.
#
#   images/test.sh [TEST…]         all of the Go tests by default
#
# TAG names the image, as in build.sh.
set -eu
cd "$(dirname "$0")/.."
image=cubepod/desktop:${TAG:-dev}
ctl=/opt/cubepod/desktop/cubepod-desktop-ctl

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
chmod 755 "$work"

# A container like a guest's. The tests bring their own network, on loopback.
guest() { # options… image command…
	docker run --rm --init --network none --hostname boxa --shm-size 256m --entrypoint= "$@"
}

failed=
echo "test_ctl.sh"
guest -v "$PWD/images/desktop/test_ctl.sh:/test_ctl.sh:ro" "$image" /test_ctl.sh || failed=" test_ctl.sh"

CGO_ENABLED=0 "${GO:-go}" test -c -o "$work/ctl.test" ./desktopctl
[ $# -gt 0 ] || set -- $(CUBEPOD_TEST_BOX_PROGRAM=$ctl "$work/ctl.test" -test.list .)
for test; do
	options="-u 1000:1000 --tmpfs /run/cubepod:uid=1000,gid=1000,mode=0755"
	# Those that check what root leaves to the guest's user start as root.
	if grep -A2 "^func $test(" desktopctl/*_test.go | grep -q 'nterAsRoot'; then
		options="-u 0:0 --cap-add SYS_ADMIN --security-opt apparmor=unconfined"
	fi
	# shellcheck disable=SC2086 # a list of options
	guest $options -e CUBEPOD_TEST_BOX=1 -e CUBEPOD_TEST_BOX_PROGRAM=$ctl \
		-v "$work/ctl.test:/ctl.test:ro" -w /tmp "$image" /ctl.test -test.run "^$test\$" >"$work/log" 2>&1 &&
		echo "ok   $test" || { echo "FAIL $test"; tail -n 60 "$work/log"; failed="$failed $test"; }
done
[ -z "$failed" ] || { echo "failed:$failed"; exit 1; }
