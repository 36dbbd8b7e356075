package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/cubeplexai/cubepod/internal/redisurl"
	"github.com/cubeplexai/cubepod/sessionapi"
	"github.com/cubeplexai/cubepod/sessionapi/console"
	"github.com/cubeplexai/cubepod/sessionapi/local"
	"github.com/cubeplexai/cubepod/sessionapi/redisstore"
)

const (
	// drainTimeout is how long requests may still run at shutdown. Those that
	// only follow a log never end by themselves.
	drainTimeout = 5 * time.Second
	// pauseTimeout bounds pausing all sandboxes at shutdown.
	pauseTimeout = 20 * time.Second
)

// run serves until ctx ends or something it needs does, and cleans up.
func run(ctx context.Context, cfg *Config, log *zap.Logger) error {
	var err error
	if cfg.Data, err = filepath.Abs(cfg.Data); err != nil {
		return err
	}
	if cfg.Redis == embedded {
		lock, err := lockData(cfg.Data)
		if err != nil {
			return err
		}
		defer lock.Close()
	}
	keys, err := loadSecrets(cfg)
	if err != nil {
		return err
	}
	opts, err := options(cfg, log)
	if err != nil {
		return err
	}
	listener, err := listen(ctx, "--listen", cfg.Listen)
	if err != nil {
		return err
	}
	defer listener.Close() // the server closes it earlier
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	opts.Metrics = sessionapi.NewMetrics(reg)
	var metrics net.Listener
	if cfg.MetricsListen != "" {
		if metrics, err = listen(ctx, "--metrics-listen", cfg.MetricsListen); err != nil {
			return err
		}
		defer metrics.Close()
	}
	rt, err := local.New(local.Options{Data: cfg.Data, GuestDir: cfg.GuestDir, Log: log.Named("local")})
	if err != nil {
		return err
	}
	defer rt.Close()
	opts.SocketDir = rt.SocketDir()

	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	url := cfg.Redis
	if cfg.Redis == embedded {
		server, err := startRedis(ctx, filepath.Join(cfg.Data, "redis"))
		if err != nil {
			return err
		}
		defer server.stop()
		url = server.url()
		go func() {
			select {
			case <-server.done:
				end(fmt.Errorf("the embedded redis-server ended; see %s", filepath.Join(cfg.Data, "redis", "redis.log")))
			case <-ctx.Done():
			}
		}()
	}
	redisOpts, err := redisurl.Parse(url)
	if err != nil {
		return fmt.Errorf("--redis: %w", err)
	}
	store := redisstore.New(redisOpts)
	defer store.Close()
	service, err := sessionapi.New(rt, store, keys.Keys, opts)
	if err != nil {
		return err
	}
	defer service.Close()

	handler := sessionapi.NewHandler(service, keys.api, console.Handler())
	server := newServer(handler, log)
	failed := make(chan error, 2)
	serve := func(s *http.Server, l net.Listener) {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	}
	go serve(server, listener)
	if metrics != nil {
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
		ms := newServer(mux, log)
		defer ms.Close()
		go serve(ms, metrics)
	}
	log.Info("session API listening", zap.String("address", listener.Addr().String()), zap.String("runtime", rt.Name()))
	if cfg.APIKeys == "" {
		log.Info("an administrator's API key is in a file", zap.String("path", filepath.Join(cfg.Data, "keys", "admin-key")))
	}
	go announce(ctx, service, log)

	select {
	case <-ctx.Done():
	case err := <-failed:
		end(fmt.Errorf("serve: %w", err))
	}
	shutDown(server, service, cfg.Redis == embedded, log)
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

func options(cfg *Config, log *zap.Logger) (*sessionapi.Options, error) {
	opts := &sessionapi.Options{
		PanelBaseURL:  cfg.PanelBaseURL,
		HideCDP:       !cfg.ExposeCDP,
		NoDesktop:     !cfg.Desktop,
		AllowUpstream: cfg.AllowUpstream,
		Logger:        log,
	}
	if cfg.Templates != "" {
		var err error
		if opts.Templates, err = sessionapi.LoadTemplates(cfg.Templates); err != nil {
			return nil, fmt.Errorf("--templates: %w", err)
		}
	}
	return opts, nil
}

func newServer(h http.Handler, log *zap.Logger) *http.Server {
	errorLog, _ := zap.NewStdLogAt(log, zap.DebugLevel)
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          errorLog,
	}
}

func listen(ctx context.Context, flag, address string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("the address %s is in use: choose another with %s", address, flag)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return l, nil
}

// announce says until all is there what the API waits for. Requests are
// answered meanwhile, with 503.
func announce(ctx context.Context, service *sessionapi.Service, log *zap.Logger) {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		err := service.Ready(ctx)
		if err == nil {
			log.Info("session API ready")
			return
		}
		if ctx.Err() != nil {
			return
		}
		log.Warn("session API waits", zap.Error(err))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// shutDown lets running requests end. Nobody else can serve the sandboxes of an
// embedded store, so they are paused.
func shutDown(server *http.Server, service *sessionapi.Service, pause bool, log *zap.Logger) {
	log.Info("session API shutting down")
	drain, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	if err := server.Shutdown(drain); err != nil {
		server.Close()
	}
	if !pause {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), pauseTimeout)
	defer cancel()
	if err := service.PauseAll(ctx); err != nil {
		log.Error("not all sandboxes are paused", zap.Error(err))
	}
}
