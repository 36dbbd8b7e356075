#!/bin/sh
# Installs a Docker engine with what the tests of the docker runtime need, and
# starts it when none answers. It says how to stop what it started. It is for
# machines without a service manager, such as CI's; elsewhere the package has
# started the engine already.
set -eu

if [ "$(id -u)" != 0 ]; then
	echo "docker.sh needs root" >&2
	exit 1
fi

"$(dirname "$0")/packages.sh" docker compose

if docker version >/dev/null 2>&1; then
	echo "A Docker engine answers."
	exit 0
fi
# A machine that was switched off, or a container made from an image of one,
# has the file of a daemon that is gone.
pidfile=/var/run/docker.pid
if [ -f "$pidfile" ] && ! kill -0 "$(cat "$pidfile")" 2>/dev/null; then
	rm -f "$pidfile"
fi
log=/var/log/dockerd.log
setsid dockerd >"$log" 2>&1 </dev/null &
pid=$!
tries=0
until docker version >/dev/null 2>&1; do
	tries=$((tries + 1))
	if [ $tries -gt 300 ] || ! kill -0 $pid 2>/dev/null; then
		echo "dockerd did not come up; the end of $log:" >&2
		tail -n 20 "$log" >&2
		exit 1
	fi
	sleep 0.2
done
echo "Started dockerd, its log is $log. Stop it with: kill $pid"
