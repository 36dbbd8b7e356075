#!/bin/sh
# Builds the images with Docker from what is in bin/.
#
#   images/build.sh [IMAGE…]         all of them by default
#
# TAG names them (cubepod/desktop:$TAG, "dev" by default), BASE is the base of
# the guest images. A base that cannot be pulled is made from Debian's packages.
set -eu
cd "$(dirname "$0")/.."

tag=${TAG:-dev}
base=${BASE:-debian:trixie-slim}

# contents copies to a folder what an image's Dockerfile takes besides its own
# folder. An image is a folder with a Dockerfile, and a line here.
contents() { # image folder
	case $1 in
	base) cp images/guest.sh "$2" ;;
	desktop) cp -r images/guest.sh bin/desktop "$2" ;;
	*) echo "$0: no image $1" >&2; return 2 ;;
	esac
}

build() { # image
	context=$(mktemp -d)
	cp -r "images/$1/." "$context"
	contents "$1" "$context"
	# The builder of old: it needs no plug-in. The host's network: it needs no bridge. Files of the context keep the
	# mode they have here, so that mktemp's must not be the image's.
	chmod -R u=rwX,go=rX "$context"
	DOCKER_BUILDKIT=0 docker build -q --network host --build-arg BASE="$base" -t "cubepod/$1:$tag" "$context" >/dev/null || { rm -rf "$context"; return 1; }
	rm -rf "$context"
	docker image ls --format '{{.Repository}}:{{.Tag}} {{.Size}}' "cubepod/$1:$tag"
}

[ $# -gt 0 ] || set -- base desktop

if ! docker image inspect "$base" >/dev/null 2>&1 && ! docker pull -q "$base" >/dev/null 2>&1; then
	echo "$base cannot be pulled: making it from Debian's packages"
	images/base.sh "$base"
fi
for image; do
	build "$image"
done
