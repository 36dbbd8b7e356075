package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/volume"
	"go.uber.org/zap"
)

// guestBin is where the guest's programs are in a sandbox.
const guestBin = "/opt/cubepod/bin"

// labelVersion is the version of the guest's programs that a volume holds or,
// with labelContent, is the sign for: the volume that labelContent names is
// complete. The sign is a volume too, an empty one, since the engine makes those
// atomically by name: of several programs that fill a volume at once, one's
// counts.
const (
	labelVersion = "cubepod.guest"
	labelContent = "cubepod.guest-volume"
)

// guestVolume is a volume with the guest's programs.
type guestVolume struct {
	name  string
	first string // the program that is process 1
}

// guestPrograms are the files of the volume, and the first that is there runs.
var guestPrograms = []string{"podd-init", "podd"}

// guestVolume gives the volume for the programs in the guest directory, after
// filling it if nobody has. It is filled through a container of image that
// never runs.
func (r *Runtime) guestVolume(ctx context.Context, image string) (guestVolume, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.guest.name != "" {
		// Somebody may have pruned it, and the engine would make an empty one.
		_, err := r.engine.VolumeInspect(ctx, r.guest.name)
		if err == nil || !errdefs.IsNotFound(err) {
			return r.guest, err
		}
	}
	content, g, version, err := packGuest(filepath.Join(r.opts.GuestDir, "guest"))
	if err != nil {
		return guestVolume{}, err
	}
	sign := "cubepod-guest-" + version
	if g.name, err = r.signed(ctx, sign); err == nil && g.name == "" {
		g.name, err = r.fill(ctx, sign, version, image, content)
	}
	if err != nil {
		return guestVolume{}, fmt.Errorf("volume of guest programs: %w", err)
	}
	r.guest = g
	return g, nil
}

// packGuest gives the programs as a tar archive, and their version.
func packGuest(dir string) (content []byte, g guestVolume, version string, err error) {
	var out bytes.Buffer
	tw := tar.NewWriter(&out)
	for _, name := range guestPrograms {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) && name != "podd" {
			continue
		}
		if err != nil {
			return nil, g, "", unavailable(err, "the docker runtime finds no podd at %s: run make build", filepath.Join(dir, name))
		}
		if g.first == "" {
			g.first = name
		}
		_ = tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(data))}) // to memory
		_, _ = tw.Write(data)
	}
	_ = tw.Close()
	sum := sha256.Sum256(out.Bytes())
	return out.Bytes(), g, fmt.Sprintf("%x", sum[:6]), nil
}

// signed gives the complete volume that a sign names, "" when there is none.
func (r *Runtime) signed(ctx context.Context, sign string) (string, error) {
	v, err := r.engine.VolumeInspect(ctx, sign)
	if errdefs.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	name := v.Labels[labelContent]
	_, err = r.engine.VolumeInspect(ctx, name)
	if errdefs.IsNotFound(err) { // pruned
		return "", r.engine.VolumeRemove(ctx, sign, false)
	}
	return name, err
}

// fill makes a volume with content and signs for it, unless another program was
// faster.
func (r *Runtime) fill(ctx context.Context, sign, version, image string, content []byte) (_ string, err error) {
	name := sign + "-" + strings.ToLower(rand.Text()[:8])
	discard := func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		if err := r.engine.VolumeRemove(clean, name, true); err != nil {
			r.log.Warn("volume left behind", zap.String("volume", name), zap.Error(err))
		}
	}
	if _, err := r.engine.VolumeCreate(ctx, volume.CreateOptions{Name: name, Labels: map[string]string{labelVersion: version}}); err != nil {
		return "", err
	}
	if err := r.copyInto(ctx, name, image, content); err != nil {
		discard()
		return "", err
	}
	got, err := r.engine.VolumeCreate(ctx, volume.CreateOptions{Name: sign, Labels: map[string]string{labelVersion: version, labelContent: name}})
	if err != nil || got.Labels[labelContent] != name {
		discard()
		return got.Labels[labelContent], err
	}
	r.discardOld(ctx, version)
	return name, nil
}

func (r *Runtime) copyInto(ctx context.Context, name, image string, content []byte) error {
	c, err := r.engine.ContainerCreate(ctx, &container.Config{Image: image, Cmd: []string{"none"}}, &container.HostConfig{
		NetworkMode: "none",
		Mounts:      []mount.Mount{{Type: mount.TypeVolume, Source: name, Target: guestBin}},
	}, nil, nil, name)
	if err != nil {
		return imageError(err, image)
	}
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		if err := r.remove(clean, c.ID); err != nil {
			r.log.Warn("container left behind", zap.String("container", c.ID), zap.Error(err))
		}
	}()
	return r.engine.CopyToContainer(ctx, c.ID, guestBin, bytes.NewReader(content), container.CopyToContainerOptions{})
}

// discardOld removes the volumes of other versions that no container uses.
func (r *Runtime) discardOld(ctx context.Context, version string) {
	all, err := r.engine.VolumeList(ctx, volume.ListOptions{Filters: filters.NewArgs(filters.Arg("label", labelVersion))})
	if err != nil {
		return
	}
	for _, v := range all.Volumes {
		if v.Labels[labelVersion] != version && v.Labels[labelContent] == "" {
			// One that is in use, or still being filled, stays.
			if r.engine.VolumeRemove(ctx, v.Name, false) == nil {
				r.log.Info("removed the guest programs of another version", zap.String("volume", v.Name))
				_ = r.engine.VolumeRemove(ctx, "cubepod-guest-"+v.Labels[labelVersion], false) // its sign; an idle one does no harm
			}
		}
	}
}
