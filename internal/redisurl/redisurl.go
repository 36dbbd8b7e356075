// Package redisurl reads the Redis URL that the session API and the edge take:
//
//	redis://[user:password@]host:port[/db]     one server
//	rediss://…                                 the same over TLS
//	unix:///path/to.sock, unix:relative.sock   a Unix socket
//	redis://host:port?addr=host2:port          a cluster, "addr" repeated
//	redis://host:port?master_name=NAME         sentinels, further ones by "addr"
//
// Further parameters, such as dial_timeout and pool_size, are those of
// go-redis' ParseURL; with sentinels also sentinel_username and
// sentinel_password.
package redisurl

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"

	"github.com/redis/go-redis/v9"
)

// Parse gives the options of the client that raw describes. Its errors do not
// quote raw, which may hold a password.
func Parse(raw string) (*redis.UniversalOptions, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("redis URL: it does not parse")
	}
	q := u.Query()
	more, master := q["addr"], q.Get("master_name")
	sentinelUser, sentinelPassword := q.Get("sentinel_username"), q.Get("sentinel_password")
	for _, name := range []string{"addr", "master_name", "sentinel_username", "sentinel_password"} {
		q.Del(name)
	}
	u.RawQuery = q.Encode()
	if u.Scheme == "unix" {
		if len(more) > 0 || master != "" {
			return nil, errors.New("redis URL: a unix socket is one server, without addr or master_name")
		}
		if err := makeAbsolute(u); err != nil {
			return nil, err
		}
	} else if u.Host == "" {
		return nil, errors.New("redis URL: want redis://host:port, rediss://host:port or unix:///path")
	}
	single, err := redis.ParseURL(u.String())
	if err != nil {
		if inner := errors.Unwrap(err); inner != nil {
			err = inner // url.Error quotes the URL
		}
		return nil, fmt.Errorf("redis URL: %w", err)
	}
	o := universal(single)
	o.Addrs = append(o.Addrs, more...)
	o.MasterName = master
	o.IsClusterMode = master == "" && len(more) > 0
	if master != "" {
		o.SentinelUsername, o.SentinelPassword = sentinelUser, sentinelPassword
	}
	if o.IsClusterMode && o.DB != 0 {
		return nil, errors.New("redis URL: a cluster has no databases")
	}
	if o.TLSConfig != nil && len(o.Addrs) > 1 {
		o.TLSConfig.ServerName = "" // each server goes by its own name
	}
	return o, nil
}

// makeAbsolute turns a Unix socket's path, which may be relative to the working
// directory, into one that go-redis takes for a socket.
func makeAbsolute(u *url.URL) error {
	path := u.Opaque
	if path == "" {
		path = u.Host + u.Path
	}
	if path == "" {
		return errors.New("redis URL: no socket path in it")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("redis URL: %w", err)
	}
	u.Opaque, u.Host, u.Path, u.RawPath = "", "", abs, ""
	return nil
}

func universal(o *redis.Options) *redis.UniversalOptions {
	return &redis.UniversalOptions{
		Addrs:                 []string{o.Addr},
		Protocol:              o.Protocol,
		ClientName:            o.ClientName,
		DB:                    o.DB,
		Username:              o.Username,
		Password:              o.Password,
		MaxRetries:            o.MaxRetries,
		MinRetryBackoff:       o.MinRetryBackoff,
		MaxRetryBackoff:       o.MaxRetryBackoff,
		DialTimeout:           o.DialTimeout,
		ReadTimeout:           o.ReadTimeout,
		WriteTimeout:          o.WriteTimeout,
		ContextTimeoutEnabled: true,
		PoolFIFO:              o.PoolFIFO,
		PoolSize:              o.PoolSize,
		PoolTimeout:           o.PoolTimeout,
		MinIdleConns:          o.MinIdleConns,
		MaxIdleConns:          o.MaxIdleConns,
		MaxActiveConns:        o.MaxActiveConns,
		ConnMaxIdleTime:       o.ConnMaxIdleTime,
		ConnMaxLifetime:       o.ConnMaxLifetime,
		TLSConfig:             o.TLSConfig,
	}
}
