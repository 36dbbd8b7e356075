package main

import (
	"fmt"

	"go.uber.org/zap"

	"github.com/cubeplexai/cubepod/sessionapi"
	"github.com/cubeplexai/cubepod/sessionapi/docker"
	"github.com/cubeplexai/cubepod/sessionapi/local"
)

// runtime is a runtime that is given back at the end.
type runtime interface {
	sessionapi.Runtime
	Close() error
}

// runtimes are the values of --runtime.
var runtimes = []string{"local", "docker"}

func newRuntime(cfg *Config, log *zap.Logger) (runtime, error) {
	log = log.Named(cfg.Runtime)
	switch cfg.Runtime {
	case "local":
		rt, err := local.New(local.Options{Data: cfg.Data, GuestDir: cfg.GuestDir, Log: log})
		if err != nil {
			return nil, err // not rt: a nil *Runtime in an interface is not nil
		}
		return rt, nil
	case "docker":
		rt, err := docker.New(docker.Options{
			GuestDir:         cfg.GuestDir,
			Network:          cfg.Network,
			ContainerRuntime: cfg.ContainerRuntime,
			RequireFirewall:  cfg.RequireFirewall,
			Log:              log,
		})
		if err != nil {
			return nil, err
		}
		return rt, nil
	}
	return nil, fmt.Errorf("--runtime: %q is not a runtime of this program", cfg.Runtime) // Validate has said so
}
