#!/bin/sh
# Sets this machine up, builds CubePod and runs it. Arguments go to bin/dev.
set -eu
cd "$(dirname "$0")/../.."
deploy/dev/packages.sh run
make --no-print-directory build
# The local runtime makes namespaces and mounts, and runs commands as uid 1000.
if [ "$(id -u)" = 0 ]; then
	exec bin/dev "$@"
fi
echo "Starting as root with sudo: the local runtime makes namespaces and mounts"
exec sudo bin/dev "$@"
