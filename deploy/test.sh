#!/bin/sh
# Runs the tests of the given packages. What was skipped is listed at the end
# with its reason; under CUBEPOD_TEST_NO_SKIP=1 a skip is a failure.
set -eu
cd "$(dirname "$0")/.."
deploy/build.sh
# Containers come and go last, and alone: each changes this machine's network
# interfaces, and Chromium then drops what it is loading.
go=${GO:-go}
# The tests of an image need the image: `make test-images` builds it before.
all=$($go list "$@" | grep -v '/cubepod/images$')
docker=$(echo "$all" | grep '/sessionapi/docker$' || :)
rest=$(echo "$all" | grep -v '/sessionapi/docker$' || :)
# The report's exit status is the tests' one.
for packages in "$rest" "$docker"; do
	[ -z "$packages" ] || $go test -json -timeout 20m ${TESTFLAGS:-} $packages 2>&1 || :
done | $go run ./internal/testutil/report
