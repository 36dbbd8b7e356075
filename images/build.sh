#!/bin/sh
# Builds the images with Docker from what is in bin/.
#
#   images/build.sh [IMAGE…]         all of them by default
#
# TAG names them (cubepod/desktop:$TAG, "dev" by default), BASE is their
# base. A base that cannot be pulled is made from Debian's packages.
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
	podd) cp bin/guest/podd bin/guest/podd-init "$2" ;;
	edge) cp bin/cubepod-edge "$2" ;;
	sessionapi) cp -r bin/cubepod-sessionapi bin/guest "$2" ;;
	*) echo "$0: no image $1" >&2; return 2 ;;
	esac
}

# dangling lists the images that have no name.
dangling() { docker image ls --quiet --no-trunc --filter dangling=true | sort; }

build() { # image
	name=cubepod/$1:$tag
	rm -rf "$context"
	mkdir "$context"
	cp -r "images/$1/." "$context"
	contents "$1" "$context"
	# Files of the context keep the mode they have here.
	chmod -R u=rwX,go=rX "$context"
	dangling >"$work/before"
	# The builder of old: it needs no plug-in. The host's network: it needs no bridge.
	DOCKER_BUILDKIT=0 docker build -q --force-rm --network host --build-arg BASE="$base" -t "$name" "$context" >/dev/null
	# Nobody wants the image that has lost its name to this one, nor the stages
	# that this one came from. What a container is made of stays.
	dangling | comm -13 "$work/before" - | xargs -r docker image rm >/dev/null 2>&1 || :
	docker image ls --format '{{.Repository}}:{{.Tag}} {{.Size}}' "$name"
}

work=$(mktemp -d)
context=$work/context
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

[ $# -gt 0 ] || set -- base desktop podd edge sessionapi

if ! docker image inspect "$base" >/dev/null 2>&1 && ! docker pull -q "$base" >/dev/null 2>&1; then
	echo "$base cannot be pulled: making it from Debian's packages"
	images/base.sh "$base"
fi
for image; do
	build "$image"
done
