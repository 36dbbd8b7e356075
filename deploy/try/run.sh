#!/bin/sh
# Tries programs that nobody here wrote through the panels of a running
# `make run`: each ends with "works", "failed" or "skipped", and why.
#
#   deploy/try/run.sh            all but code-server, which is big
#   deploy/try/run.sh vite …     these: agent-browser code-server jupyter novnc
#                                playwright puppeteer ttyd vite
#
# It needs Node.js 20.19 or later with npm, and a Chromium. What it installs
# goes below the data directory, with npm, but for Debian's jupyter-notebook,
# which the sandboxes of the local runtime share with this machine.
# CUBEPOD_DEV names the facts of another `make run` than the one here.
# The exit code is 1 when one of them failed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
facts=${CUBEPOD_DEV:-$here/../../.cubepod/dev.json}
[ -r "$facts" ] || { echo "$facts is not there: start make run first" >&2; exit 2; }
for tool in node npm; do
	command -v $tool >/dev/null || { echo "$tool is missing: apt-get install nodejs npm" >&2; exit 2; }
done
export CUBEPOD_DEV="$(cd "$(dirname "$facts")" && pwd)/$(basename "$facts")"
export CUBEPOD_BIN="${CUBEPOD_BIN:-$here/../../bin}"
work=$(dirname "$CUBEPOD_DEV")/try
mkdir -p "$work"
cp -R "$here"/*.mjs "$here"/package.json "$here"/own-hosts.Caddyfile "$here"/vite "$work"/
(cd "$work" && npm install --no-audit --no-fund --loglevel error)

[ $# -gt 0 ] || set -- playwright puppeteer agent-browser novnc ttyd vite jupyter
failed=0
for name in "$@"; do
	[ -r "$work/$name.mjs" ] || { echo "$name: nothing of that name to try" >&2; exit 2; }
	node "$work/$name.mjs" || failed=1
done
exit $failed
