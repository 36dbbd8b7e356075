package redisurl_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cubeplexai/cubepod/internal/redisurl"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

func TestParse(t *testing.T) {
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		url     string
		addrs   []string
		master  string
		cluster bool
		tls     string // server name, "-" for none
		db      int
	}{
		{url: "redis://r:1/3", addrs: []string{"r:1"}, tls: "-", db: 3},
		{url: "redis://r", addrs: []string{"r:6379"}, tls: "-"},
		{url: "rediss://u:p@r:2", addrs: []string{"r:2"}, tls: "r"},
		{url: "unix:///run/r.sock", addrs: []string{"/run/r.sock"}, tls: "-"},
		{url: "unix:///run/r.sock?db=2", addrs: []string{"/run/r.sock"}, tls: "-", db: 2},
		{url: "unix:.cubepod/r.sock", addrs: []string{filepath.Join(wd, ".cubepod/r.sock")}, tls: "-"},
		{url: "unix://.cubepod/r.sock", addrs: []string{filepath.Join(wd, ".cubepod/r.sock")}, tls: "-"},
		{url: "redis://a:1?addr=b:2&addr=c:3", addrs: []string{"a:1", "b:2", "c:3"}, cluster: true, tls: "-"},
		{url: "rediss://a:1?addr=b:2", addrs: []string{"a:1", "b:2"}, cluster: true, tls: ""},
		{url: "redis://a:1/2?master_name=m&addr=b:2", addrs: []string{"a:1", "b:2"}, master: "m", tls: "-", db: 2},
		{url: "redis://[::1]:7", addrs: []string{"[::1]:7"}, tls: "-"},
	}
	for _, tt := range tests {
		o, err := redisurl.Parse(tt.url)
		if err != nil {
			t.Errorf("%s: %v", tt.url, err)
			continue
		}
		tls := "-"
		if o.TLSConfig != nil {
			tls = o.TLSConfig.ServerName
		}
		if !slices.Equal(o.Addrs, tt.addrs) || o.MasterName != tt.master || o.IsClusterMode != tt.cluster || tls != tt.tls || o.DB != tt.db {
			t.Errorf("%s: got %v master %q cluster %v tls %q db %d", tt.url, o.Addrs, o.MasterName, o.IsClusterMode, tls, o.DB)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, raw := range []string{"", "localhost:6379", "http://secret@x", "redis:///2", "unix:", "redis://:secret@a:1?nonsense=1",
		"redis://a:1/1?addr=b:2", "unix:///s?master_name=m", "redis://:secret@a:1/%zz", "redis://:secret@a:port"} {
		_, err := redisurl.Parse(raw)
		if err == nil {
			t.Errorf("%q passes", raw)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error tells the password: %v", err)
		}
	}
}

func TestParsedClientWorks(t *testing.T) {
	o, err := redisurl.Parse(testutil.StartRedis(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewUniversalClient(o)
	defer c.Close()
	if got, err := c.Ping(context.Background()).Result(); err != nil || got != "PONG" {
		t.Errorf("got %q, %v", got, err)
	}
}
