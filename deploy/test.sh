#!/bin/sh
# Runs the tests of the given packages. What was skipped is listed at the end
# with its reason; under CUBEPOD_TEST_NO_SKIP=1 a skip is a failure.
set -eu
cd "$(dirname "$0")/.."
deploy/build.sh
# The report's exit status is the tests' one.
${GO:-go} test -json -timeout 20m ${TESTFLAGS:-} "$@" 2>&1 | ${GO:-go} run ./internal/testutil/report
