package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/cubeplexai/cubepod/internal/redisurl"
	"github.com/cubeplexai/cubepod/sessionapi"
	"github.com/cubeplexai/cubepod/sessionapi/console"
	"github.com/cubeplexai/cubepod/sessionapi/redisstore"
)

const (
	// streamTimeout is how long calls into sandboxes may still run at shutdown.
	// Those that follow a log never end by themselves.
	streamTimeout = 5 * time.Second
	// drainTimeout is how long any request may, such as a create.
	drainTimeout = 15 * time.Second
	// pauseTimeout bounds pausing all sandboxes at shutdown.
	pauseTimeout = 25 * time.Second
)

// program is the running program. Its fields are filled by open, in their
// order, and emptied by close in the opposite one.
type program struct {
	cfg *Config
	log *zap.Logger

	lock     *os.File // nil unless Redis is embedded
	secrets  secrets
	listener net.Listener
	metrics  net.Listener // nil when there is none
	runtime  runtime
	redis    *embeddedRedis // nil unless embedded
	store    *redisstore.Store
	service  *sessionapi.Service
	files    follower
	registry *prometheus.Registry
}

// run serves until ctx ends or something it needs does, and cleans up.
func run(ctx context.Context, cfg *Config, log *zap.Logger) error {
	p := &program{cfg: cfg, log: log, registry: prometheus.NewRegistry()}
	defer p.close()
	if err := p.open(ctx); err != nil {
		return err
	}
	return p.serve(ctx)
}

func (p *program) open(ctx context.Context) (err error) {
	cfg := p.cfg
	if cfg.Data, err = filepath.Abs(cfg.Data); err != nil {
		return err
	}
	if cfg.Redis == embedded {
		if p.lock, err = lockData(cfg.Data); err != nil {
			return err
		}
	}
	if p.secrets, err = loadSecrets(cfg); err != nil {
		return err
	}
	p.files.log = p.log
	if err := p.files.follow("--api-keys", p.secrets.apiPath, p.readAPIKeys); err != nil {
		return err
	}
	if p.listener, err = listen(ctx, "--listen", cfg.Listen); err != nil {
		return err
	}
	if cfg.MetricsListen != "" {
		if p.metrics, err = listen(ctx, "--metrics-listen", cfg.MetricsListen); err != nil {
			return err
		}
	}
	if p.runtime, err = newRuntime(cfg, p.log); err != nil {
		return err
	}
	url := cfg.Redis
	if url == embedded {
		if p.redis, err = startRedis(ctx, filepath.Join(cfg.Data, "redis")); err != nil {
			return err
		}
		url = p.redis.url()
	}
	opts, err := redisurl.Parse(url)
	if err != nil {
		return fmt.Errorf("--redis: %w", err)
	}
	p.store = redisstore.New(opts)
	return p.openService()
}

func (p *program) openService() (err error) {
	cfg := p.cfg
	p.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	opts := &sessionapi.Options{
		PanelBaseURL:  cfg.PanelBaseURL,
		HideCDP:       !cfg.ExposeCDP,
		NoDesktop:     !cfg.Desktop,
		AllowUpstream: cfg.AllowUpstream,
		RateLimit:     cfg.RateLimit,
		Warnings:      p.files.warnings,
		SocketDir:     filepath.Join(cfg.Data, "sockets"), // the local runtime's
		Logger:        p.log,
		Metrics:       sessionapi.NewMetrics(p.registry),
	}
	if cfg.Templates != "" {
		read := func() error {
			templates, err := sessionapi.LoadTemplates(cfg.Templates)
			if err != nil {
				return err
			}
			if opts.Templates = templates; p.service != nil {
				p.service.SetTemplates(templates)
			}
			return nil
		}
		if err := p.files.follow("--templates", cfg.Templates, read); err != nil {
			return err
		}
	}
	p.service, err = sessionapi.New(p.runtime, p.store, p.secrets.Keys, opts)
	return err
}

func (p *program) readAPIKeys() error {
	keys, err := sessionapi.LoadAPIKeys(p.secrets.apiPath)
	if err == nil {
		p.secrets.api.Replace(keys)
	}
	return err
}

// close gives back what open took, as far as it came.
func (p *program) close() {
	if p.service != nil {
		p.service.Close()
	}
	if p.store != nil {
		p.store.Close()
	}
	if p.redis != nil {
		p.redis.stop()
	}
	if p.runtime != nil {
		p.runtime.Close()
	}
	for _, l := range []net.Listener{p.metrics, p.listener} {
		if l != nil {
			l.Close() // its server may have
		}
	}
	if p.lock != nil {
		p.lock.Close()
	}
}

// serve answers requests until ctx ends, or a listener does, or there is no
// embedded Redis to be had any more, and then shuts down in good order.
func (p *program) serve(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer end(nil)
	api := newServer(sessionapi.NewHandler(p.service, p.secrets.api, console.Handler()), p.log)
	start := func(s *http.Server, l net.Listener) {
		tasks.Go(func() {
			if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				end(fmt.Errorf("serve %s: %w", l.Addr(), err))
			}
		})
	}
	start(api, p.listener)
	if p.metrics != nil {
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{}))
		metrics := newServer(mux, p.log)
		defer metrics.Close()
		start(metrics, p.metrics)
	}
	if p.redis != nil {
		tasks.Go(func() {
			if err := p.keepRedis(ctx); err != nil {
				end(err)
			}
		})
	}
	p.log.Info("session API listening", zap.String("address", p.listener.Addr().String()), zap.String("runtime", p.runtime.Name()))
	if p.cfg.Redis == embedded && p.cfg.APIKeys == "" {
		p.log.Info("an administrator's API key is in a file", zap.String("path", filepath.Join(p.cfg.Data, "keys", "admin-key")))
	}
	tasks.Go(func() { p.announce(ctx) })
	tasks.Go(func() { p.files.run(ctx) })
	<-ctx.Done()
	p.shutDown(api)
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// announce says until all is there what the API waits for. Requests are
// answered meanwhile, with 503.
func (p *program) announce(ctx context.Context) {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	said := ""
	for {
		err := p.service.Ready(ctx)
		if err == nil {
			p.log.Info("session API ready")
			for _, warning := range p.service.Warnings(ctx) {
				p.log.Warn(warning)
			}
			return
		}
		if ctx.Err() != nil {
			return
		}
		if said != err.Error() {
			said = err.Error()
			p.log.Warn("session API waits", zap.Error(err))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// shutDown lets running requests end. Nobody else can serve the sandboxes of an
// embedded store, so they are paused.
func (p *program) shutDown(api *http.Server) {
	p.log.Info("session API shutting down")
	drain, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	defer time.AfterFunc(streamTimeout, p.service.EndStreams).Stop()
	if err := api.Shutdown(drain); err != nil {
		api.Close()
	}
	if p.cfg.Redis != embedded {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), pauseTimeout)
	defer cancel()
	if err := p.service.PauseAll(ctx); err != nil {
		p.log.Error("not all sandboxes are paused", zap.Error(err))
	}
}

func newServer(h http.Handler, log *zap.Logger) *http.Server {
	errorLog, _ := zap.NewStdLogAt(log, zap.DebugLevel) // fails for unknown levels only
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
