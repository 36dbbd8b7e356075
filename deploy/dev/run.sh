#!/bin/sh
# Sets this machine up, builds CubePod and runs it. Arguments go to bin/dev.
set -eu
cd "$(dirname "$0")/../.."
case " $* " in
*-runtime[\ =]docker\ *) deploy/dev/packages.sh build redis docker ;;
*) deploy/dev/packages.sh run ;;
esac
make --no-print-directory build
# The local runtime makes namespaces and mounts, and runs commands as uid 1000;
# the docker runtime sets firewall rules.
if [ "$(id -u)" = 0 ]; then
	exec bin/dev "$@"
fi
echo "Starting as root with sudo: sandboxes need namespaces, mounts or firewall rules"
exec sudo bin/dev "$@"
