#!/bin/sh
# Builds every program into bin/, and says which one it is at: the first build
# of Caddy takes minutes.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}

build() { # name package cgo
	printf 'building %-34s' "$1"
	start=$(date +%s)
	CGO_ENABLED=0 $go build -trimpath -ldflags '-s -w' -o "bin/$1" "$2"
	printf '%4d s\n' $(($(date +%s) - start))
}

mkdir -p bin/guest bin/desktop
build guest/podd ./podd
build guest/podd-init ./podd/init
build desktop/cubepod-desktop-ctl ./desktopctl
build cubepod-sessionapi ./sessionapi/cmd/sessionapi
build dev ./deploy/dev
build cubepod-edge ./caddymodule/caddy
desktopctl/web/build.sh bin/desktop/web
mkdir -p bin/desktop/policies
cp images/desktop/rootfs/etc/chromium/policies/managed/*.json bin/desktop/policies/
