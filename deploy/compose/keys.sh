#!/bin/sh
# Makes the keys that compose.yaml mounts, in keys/ beside it:
#
#   keys/admin-key   the API key of an administrator, for you
#   keys/api/        for the API: all of them
#   keys/edge/       for the edge: those it may have
#
# It changes nothing when they are there: with other keys, running sandboxes and
# panel URLs are lost.
set -eu
umask 077
cd "$(dirname "$0")"

if [ "$(id -u)" != 0 ]; then
	echo "keys.sh: run it as root, or with sudo: each program gets its own files" >&2
	exit 1
fi
if [ -e keys ]; then
	echo "keys.sh: $PWD/keys is there already, nothing is changed" >&2
	exit 1
fi
new=$(mktemp -d keys.XXXXXX)
trap 'rm -rf "$new"' EXIT
mkdir "$new/api" "$new/edge"

secret() { # kid: a line of a key file
	echo "$1 base64:$(head -c 32 /dev/urandom | base64 -w 0)"
}
secret m1 >"$new/api/master"
secret t1 >"$new/api/tunnel"
secret p1 >"$new/api/panel"
cp "$new/api/tunnel" "$new/api/panel" "$new/edge"
chown -R 65532:65532 "$new/edge" # the edge's user

key=cp_$(head -c 24 /dev/urandom | base64 -w 0 | tr '+/' '-_')
echo "$key" >"$new/admin-key"
echo "admin sha256:$(printf %s "$key" | sha256sum | cut -d ' ' -f 1) admin" >"$new/api/api"

mv -T "$new" keys
trap - EXIT
echo "The API key is in $PWD/keys/admin-key"
