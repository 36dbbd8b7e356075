package docker

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/network"
)

// bridge is the name of the network's interface on the host, which the firewall
// goes by. It also keeps two programs from making two networks of one name.
func bridge(network string) string { return network + "0" }

// ensureNetwork makes the sandboxes' network unless it is there.
func (r *Runtime) ensureNetwork(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.network {
		return nil
	}
	err := r.findNetwork(ctx)
	if errdefs.IsNotFound(err) {
		_, err = r.engine.NetworkCreate(ctx, r.opts.Network, network.CreateOptions{
			Driver: "bridge",
			Options: map[string]string{
				"com.docker.network.bridge.name":                 bridge(r.opts.Network),
				"com.docker.network.bridge.enable_icc":           "false",
				"com.docker.network.bridge.enable_ip_masquerade": "true",
			},
			Labels: map[string]string{"cubepod.network": r.opts.Network},
		})
		if err != nil && r.findNetwork(ctx) == nil { // another program was faster
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("network %s: %w", r.opts.Network, err)
	}
	r.network = true
	return nil
}

// findNetwork refuses a network on which sandboxes would reach each other.
func (r *Runtime) findNetwork(ctx context.Context) error {
	n, err := r.engine.NetworkInspect(ctx, r.opts.Network, network.InspectOptions{})
	if err != nil {
		return err
	}
	if n.Driver != "bridge" || n.Options["com.docker.network.bridge.enable_icc"] != "false" ||
		n.Options["com.docker.network.bridge.name"] != bridge(r.opts.Network) {
		return unavailable(nil, "the Docker network %q is not one for sandboxes: remove it, or name another", r.opts.Network)
	}
	return nil
}

func (r *Runtime) forgetNetwork() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.network = false
}
