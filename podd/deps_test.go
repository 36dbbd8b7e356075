package main_test

import (
	"testing"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

// podd is in every sandbox: it is kept small.
func TestDependencies(t *testing.T) {
	testutil.ForbidImports(t, map[string]string{
		"github.com/caddyserver/caddy/v2":                "podd is no proxy",
		"github.com/redis/go-redis/v9":                   "a sandbox never talks to the store",
		"github.com/prometheus/client_golang/prometheus": "its few values do not justify the memory",
		"go.uber.org/zap":                                "its few lines do not justify the memory",
		"github.com/golang-jwt/jwt/v5":                   "panel tokens are the edge's business",
	})
}
