package testutil_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

func TestRedisKeepsItsDataOverARestart(t *testing.T) {
	r := testutil.StartRedis(t)
	opts, err := redis.ParseURL(r.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(opts)
	defer c.Close()
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	r.Stop(t)
	r.Start(t)
	if got, err := c.Get(t.Context(), "k").Result(); err != nil || got != "v" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestForbidImports(t *testing.T) {
	testutil.ForbidImports(t, map[string]string{"github.com/caddyserver/caddy/v2": "a test helper needs no server"})
}
