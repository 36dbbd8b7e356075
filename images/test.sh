#!/bin/sh
# Tests the desktop image in containers: what is in it, the supervisor's own
# tests, and guests made of it. Nothing may be skipped.
#
#   images/test.sh [OPTION…]       options of go test, such as -run Killed
#
# TAG names the image, as in build.sh.
set -eu
cd "$(dirname "$0")/.."
export CUBEPOD_TEST_NO_SKIP=1
go=${GO:-go}
# The report's exit status is the tests' one.
$go test -json -count=1 -timeout 20m ./images "$@" 2>&1 | $go run ./internal/testutil/report
