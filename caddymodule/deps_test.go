package caddymodule_test

import (
	"testing"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

func TestDependencies(t *testing.T) {
	testutil.ForbidImports(t, map[string]string{
		"github.com/docker/docker":                 "xcaddy users must not link Docker",
		"github.com/moby/moby":                     "xcaddy users must not link Docker",
		"k8s.io/client-go":                         "xcaddy users must not link Kubernetes",
		"github.com/summerwind/h2spec":             "xcaddy users must not link a test suite",
		"github.com/cubeplexai/cubepod/sessionapi": "the edge sees records, not runtimes",
	})
}
