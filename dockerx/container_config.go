package dockerx

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/versions"
)

// asksFromHostVersion is the first API version whose engine may send DNS questions from the host's network.
const asksFromHostVersion = "1.44"

// startIntervalVersion is the first API version with Healthcheck.StartInterval: Docker 25.
const startIntervalVersion = "1.44"

// diskQuotaOption is the storage drivers' option for the size of a writable layer.
const diskQuotaOption = "size"

// Check rejects a spec that CreateContainer rejects without calling the engine: values that the engine would misread or
// ignore. Errors: ErrInvalidArgument.
func (s *ContainerSpec) Check() error {
	if s.NetworkID != "" && !isFullID(s.NetworkID) {
		return fmt.Errorf("network %q: want the full ID of a network (64 hex digits): %w", s.NetworkID, errdefs.ErrInvalidArgument)
	}
	if s.DiskBytes < 0 {
		return fmt.Errorf("disk limit of %d bytes: want 0 or more: %w", s.DiskBytes, errdefs.ErrInvalidArgument)
	}
	if err := s.Limits.Check(); err != nil {
		return err
	}
	if _, err := gpuRequest(s.GPUs); err != nil {
		return err
	}
	return s.checkPorts()
}

// isFullID keeps special network modes such as "host" out of the network mode.
func isFullID(id string) bool {
	b, err := hex.DecodeString(id)
	return err == nil && len(b) == 32
}

func (s *ContainerSpec) config() *container.Config {
	return &container.Config{
		Image:        s.Image,
		Entrypoint:   s.Entrypoint,
		Cmd:          s.Cmd,
		Env:          s.Env,
		User:         s.User,
		WorkingDir:   s.WorkingDir,
		Hostname:     s.Hostname,
		Labels:       s.Labels,
		StopSignal:   s.StopSignal,
		Healthcheck:  (*container.HealthConfig)(s.Healthcheck),
		ExposedPorts: s.exposed(),
	}
}

// noSeccomp is the security option that turns the engine's filter of system calls off.
const noSeccomp = "seccomp=unconfined"

// hostConfig expects the key that networkWord returned.
func (s *ContainerSpec) hostConfig(networkWord string) *container.HostConfig {
	h := &container.HostConfig{
		NetworkMode:   container.NetworkMode(cmp.Or(networkWord, network.NetworkNone)),
		Mounts:        s.mounts(),
		Init:          s.Init,
		DNS:           s.DNS,
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		ShmSize:       s.Limits.shmBytes(),
		Tmpfs:         s.tmpfs(),
		Sysctls:       s.Sysctls,
		LogConfig:     container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": logFileSize, "max-file": logFiles}},
		Resources:     s.Limits.resources(),
		Runtime:       s.Runtime,
		PortBindings:  s.bindings(),
		CapDrop:       s.Security.CapDrop,
		CapAdd:        s.Security.CapAdd,
		IpcMode:       container.IPCModePrivate,

		ReadonlyRootfs: s.Security.ReadOnlyRoot,
	}
	if s.Security.PrivateCgroups {
		h.CgroupnsMode = container.CgroupnsModePrivate
	}
	h.DeviceRequests, _ = gpuRequest(s.GPUs) // checked
	if s.DiskBytes != 0 {
		h.StorageOpt = map[string]string{diskQuotaOption: strconv.FormatInt(s.DiskBytes, 10)}
	}
	if s.Security.NoNewPrivileges {
		h.SecurityOpt = []string{"no-new-privileges"}
	}
	if s.Security.Unconfined {
		h.SecurityOpt = append(h.SecurityOpt, noSeccomp)
	}
	return h
}

// shmTarget is the standard mount point of the shared memory tmpfs.
const shmTarget = "/dev/shm"

// tmpfs mounts /dev/shm with a limit on files, which the engine's own lacks. The engine rejects two mounts on one target.
func (s *ContainerSpec) tmpfs() map[string]string {
	if s.Shm == nil || slices.ContainsFunc(s.mounts(), func(m mount.Mount) bool { return path.Clean(m.Target) == shmTarget }) {
		return nil
	}
	return map[string]string{shmTarget: fmt.Sprintf("size=%d,nr_inodes=%d", s.Shm.Bytes, s.Shm.Files)}
}

// gpuRequest parses gpus as the Docker CLI parses its --gpus flag.
func gpuRequest(gpus string) ([]container.DeviceRequest, error) {
	if gpus == "" {
		return nil, nil
	}
	r := container.DeviceRequest{Capabilities: [][]string{{"gpu"}}}
	if count, err := strconv.Atoi(gpus); err == nil && count > 0 {
		r.Count = count
	} else if gpus == "all" {
		r.Count = -1
	} else {
		r.DeviceIDs = strings.Split(gpus, ",")
	}
	for _, id := range r.DeviceIDs {
		if id == "" || strings.TrimSpace(id) != id || strings.HasPrefix(id, "-") || gpus == "0" {
			return nil, fmt.Errorf("gpus %q: want all, a count, or device IDs with commas between: %w", gpus, errdefs.ErrInvalidArgument)
		}
	}
	return []container.DeviceRequest{r}, nil
}

// gpusOf is the inverse of gpuRequest. Requests for other devices, or in forms that gpuRequest does not produce, yield "".
func gpusOf(requests []container.DeviceRequest) string {
	for _, r := range requests {
		switch gpu := slices.ContainsFunc(r.Capabilities, func(all []string) bool { return slices.Contains(all, "gpu") }); {
		case !gpu:
		case len(r.DeviceIDs) > 0:
			return strings.Join(r.DeviceIDs, ",")
		case r.Count == -1:
			return "all"
		case r.Count > 0:
			return strconv.Itoa(r.Count)
		}
	}
	return ""
}

// mounts uses the long form, which rejects a source that does not exist; the short one creates a directory owned by root.
func (s *ContainerSpec) mounts() []mount.Mount {
	out := make([]mount.Mount, len(s.Mounts))
	for i, m := range s.Mounts {
		out[i] = mount.Mount{Type: mount.TypeBind, Source: m.Source, Target: m.Target, ReadOnly: !m.Writable}
	}
	for _, v := range s.Volumes {
		out = append(out, mount.Mount{Type: mount.TypeVolume, Source: v.Name, Target: v.Target, VolumeOptions: &mount.VolumeOptions{Labels: v.Labels}})
	}
	return out
}

// networking also names the network by its ID, which is decisive where two networks have one name.
func (s *ContainerSpec) networking(networkWord string) *network.NetworkingConfig {
	if networkWord == "" {
		return nil
	}
	return &network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{
		networkWord: {NetworkID: s.NetworkID, Aliases: s.NetworkAliases},
	}}
}

// checkVersion rejects what the engine would ignore.
func (h *Healthcheck) checkVersion(version string) error {
	if h == nil || h.StartInterval == 0 || versions.GreaterThanOrEqualTo(version, startIntervalVersion) {
		return nil
	}
	return fmt.Errorf("the engine speaks API %s; the healthcheck's start interval needs %s (Docker 25): %w",
		version, startIntervalVersion, errdefs.ErrInvalidArgument)
}
