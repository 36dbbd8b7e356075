#!/bin/sh
# Builds a Caddy with our module the way an operator does, and checks that the
# module is in it. usage: xcaddy.sh XCADDY_PACKAGE@VERSION
set -eu
cd "$(dirname "$0")/.."
caddy=$(go list -m -f '{{.Version}}' github.com/caddyserver/caddy/v2)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# Before it believes the replacement, go asks where the module is published
# whether a longer path is one too. This checkout stands in for that place.
export GOPRIVATE=github.com/cubeplexai/cubepod
export GIT_CONFIG_COUNT=2
export GIT_CONFIG_KEY_0="url.file://$PWD.insteadOf" GIT_CONFIG_VALUE_0=https://github.com/cubeplexai/cubepod
export GIT_CONFIG_KEY_1=safe.directory GIT_CONFIG_VALUE_1='*'

go run "$1" build "$caddy" --output "$out/caddy" \
	--with github.com/cubeplexai/cubepod/caddymodule \
	--replace github.com/cubeplexai/cubepod=.
modules=$("$out/caddy" list-modules)
for m in cubepod http.handlers.cubepod_panel http.reverse_proxy.upstreams.cubepod http.reverse_proxy.transport.cubepod; do
	echo "$modules" | grep -qx "$m" || { echo "the built Caddy lacks the module $m" >&2; exit 1; }
done
echo "xcaddy builds a Caddy with the modules"
