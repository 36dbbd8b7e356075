#!/bin/sh
# Builds a Caddy with our module the way an operator does, and checks that the
# module is in it. usage: xcaddy.sh XCADDY_PACKAGE@VERSION
set -eu
cd "$(dirname "$0")/.."
caddy=$(go list -m -f '{{.Version}}' github.com/caddyserver/caddy/v2)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
go run "$1" build "$caddy" --output "$out/caddy" \
	--with github.com/cubeplexai/cubepod/caddymodule \
	--replace github.com/cubeplexai/cubepod=.
modules=$("$out/caddy" list-modules)
for m in cubepod http.handlers.cubepod_panel http.reverse_proxy.upstreams.cubepod http.reverse_proxy.transport.cubepod; do
	echo "$modules" | grep -qx "$m" || { echo "the built Caddy lacks the module $m" >&2; exit 1; }
done
echo "xcaddy builds a Caddy with the modules"
