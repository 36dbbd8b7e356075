package docker

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"

	"github.com/cubeplexai/cubepod/sessionapi"
)

// capabilities are what podd needs to start, watch and end the processes of
// any user, and to write their files. All else is dropped.
var capabilities = []string{
	"SETUID", "SETGID", "KILL",
	"CHOWN", "FOWNER", "DAC_OVERRIDE",
	"SYS_PTRACE", // reads /proc/<pid>/environ of another user's process
}

const (
	defaultPIDs = 4096
	shmSize     = 1 << 30 // browsers keep pages there; it counts as memory
)

// create makes the container of a sandbox, and its volumes unless they are
// there.
func (r *Runtime) create(ctx context.Context, spec sessionapi.Spec) (string, error) {
	if spec.Template.Image == "" {
		return "", unavailable(nil, "the template %q names no image", spec.Template.Name)
	}
	if err := r.ensureNetwork(ctx); err != nil {
		return "", err
	}
	guest, err := r.guestVolume(ctx, spec.Template.Image)
	if err != nil {
		return "", err
	}
	host, err := r.hostConfig(ctx, spec, guest)
	if err != nil {
		return "", err
	}
	resp, err := r.engine.ContainerCreate(ctx, containerConfig(spec, guest), host, &network.NetworkingConfig{
		EndpointsConfig: map[string]*network.EndpointSettings{r.opts.Network: {}},
	}, nil, containerName(spec.ID, spec.Incarnation))
	if err != nil {
		return "", imageError(fmt.Errorf("create container: %w", err), spec.Template.Image)
	}
	return resp.ID, nil
}

// imageError says what to do about an image that is not there.
func imageError(err error, image string) error {
	if errdefs.IsNotFound(err) {
		return unavailable(err, "the Docker engine has no image %q: build or pull it", image)
	}
	return err
}

func labels(spec sessionapi.Spec) map[string]string {
	return map[string]string{
		labelSandbox:    string(spec.ID),
		labelTemplate:   spec.Template.Name,
		labelDeployment: spec.Deployment,
	}
}

func containerConfig(spec sessionapi.Spec, guest guestVolume) *container.Config {
	return &container.Config{
		Image:      spec.Template.Image,
		Hostname:   string(spec.ID),
		User:       "0:0",
		WorkingDir: "/",
		Entrypoint: []string{guestBin + "/" + guest.first},
		Cmd:        []string{"--token-file", "/run/podd/token", "--state-dir", "/var/lib/podd"},
		Labels:     labels(spec),
		// What the image says of health is about its own program.
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
	}
}

func (r *Runtime) hostConfig(ctx context.Context, spec sessionapi.Spec, guest guestVolume) (*container.HostConfig, error) {
	t := spec.Template
	pids := t.PIDs
	if pids == 0 {
		pids = defaultPIDs
	}
	cpus, err := r.limitCPUs(ctx, t.CPUs)
	if err != nil {
		return nil, err
	}
	h := &container.HostConfig{
		NetworkMode:   container.NetworkMode(r.opts.Network),
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyUnlessStopped}, // after a restart of the engine
		LogConfig:     container.LogConfig{Type: "local", Config: map[string]string{"max-size": "1m", "max-file": "2"}},
		CapDrop:       []string{"ALL"},
		CapAdd:        capabilities,
		SecurityOpt:   []string{"no-new-privileges:true"},
		Runtime:       r.opts.ContainerRuntime,
		ShmSize:       shmSize,
		// Emptied by a stop. X servers want their directory to be root's.
		Tmpfs: map[string]string{
			"/tmp":           "rw,exec,nosuid,nodev,mode=1777",
			"/tmp/.X11-unix": "rw,nosuid,nodev,mode=1777,size=64k",
			"/tmp/.ICE-unix": "rw,nosuid,nodev,mode=1777,size=64k",
			"/run/cubepod":   "rw,nosuid,nodev,mode=0755",
		},
		Resources: container.Resources{
			Memory: t.Memory, MemorySwap: t.Memory, // no swap on top
			NanoCPUs:  cpus,
			PidsLimit: &pids,
		},
		Mounts: []mount.Mount{{Type: mount.TypeVolume, Source: guest.name, Target: guestBin, ReadOnly: true}},
	}
	if t.ContainerRuntime != "" {
		h.Runtime = t.ContainerRuntime
	}
	vols := volumesOf(spec.ID)
	for _, target := range slices.Sorted(maps.Keys(vols)) {
		h.Mounts = append(h.Mounts, mount.Mount{
			Type: mount.TypeVolume, Source: vols[target], Target: target,
			VolumeOptions: &mount.VolumeOptions{Labels: labels(spec)},
		})
	}
	return h, nil
}

// limitCPUs gives cpus in the engine's unit, but not more than there are, which
// the engine would refuse.
func (r *Runtime) limitCPUs(ctx context.Context, cpus float64) (int64, error) {
	if cpus == 0 {
		return 0, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cpus == 0 {
		info, err := r.engine.Info(ctx)
		if err != nil {
			return 0, err
		}
		r.cpus = info.NCPU
	}
	return int64(min(cpus, float64(r.cpus)) * 1e9), nil
}
