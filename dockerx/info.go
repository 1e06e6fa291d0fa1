package dockerx

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/versions"
	"github.com/docker/docker/client"
)

// Info is what an engine says of itself.
type Info struct {
	// EngineID is the engine's own ID. It proves nothing: two engines on one host may share it (seen, 20.10), and it may
	// change when the engine is upgraded.
	EngineID string
	// Version and APIVersion are the engine's, as "20.10.24" and "1.41".
	Version, APIVersion string
	// LiveRestore says that containers outlive the engine's process.
	LiveRestore bool
	// Runtimes are the names that ContainerSpec.Runtime may have, sorted.
	Runtimes []string
	// DefaultRuntime is the one that a container gets whose spec names none.
	DefaultRuntime string
	// What the engine and its kernel can bound. DiskLimit is true where the storage driver may be able to; the create has
	// the last word.
	CPULimit, MemoryLimit, SwapLimit, PidsLimit, DiskLimit bool
	// StorageDriver is the engine's word, for messages: "overlay2 on extfs".
	StorageDriver string
	// Driver and DataRoot are where the engine keeps its containers: "overlay2", "/var/lib/docker". An engine that was started
	// with others shows other containers, while volumes and networks stay (seen, 20.10).
	Driver, DataRoot string
	// GPUs says that the engine can give devices to containers, as far as one can see from outside: see seesGPUs.
	GPUs bool
	// StartInterval says that Healthcheck.StartInterval is understood.
	StartInterval bool
	// Run identifies this life of the engine's process: opaque, equal as long as the process lives, different after it
	// was restarted or the host was rebooted. Empty when there is no way to tell; an empty one says nothing about death.
	// See runSource.identify for what it is made of and where that is weak.
	Run string
	// StartedAt is when this life began, by the host's wall clock as it goes now, to some 10 ms; zero when there is no way to
	// tell.
	StartedAt time.Time
}

// Info asks the engine about itself. Errors: ErrUnavailable, also when the engine was restarted meanwhile.
func (e *Engine) Info(ctx context.Context) (Info, error) {
	var info Info
	err := e.do(ctx, OpInfo, func(ctx context.Context, c *client.Client) error {
		before, err := e.run.identify(ctx, e.host, c)
		if err != nil {
			return err
		}
		raw, err := c.Info(ctx)
		if err != nil {
			return err
		}
		after, err := e.run.identify(ctx, e.host, c)
		if err != nil {
			return err
		}
		if before.id != after.id {
			return fmt.Errorf("the engine was restarted while it was asked: %w", errdefs.ErrUnavailable)
		}
		info = infoOf(raw, e.current.Load(), after)
		info.GPUs = e.seesGPUs(info.Runtimes, helperDirs)
		return nil
	})
	if err != nil {
		return Info{}, fmt.Errorf("engine info: %w", err)
	}
	return info, nil
}

func infoOf(raw system.Info, c *negotiated, life engineLife) Info {
	info := Info{
		EngineID:       raw.ID,
		Version:        raw.ServerVersion,
		LiveRestore:    raw.LiveRestoreEnabled,
		Runtimes:       slices.Sorted(maps.Keys(raw.Runtimes)),
		DefaultRuntime: raw.DefaultRuntime,
		CPULimit:       raw.CPUCfsPeriod && raw.CPUCfsQuota,
		MemoryLimit:    raw.MemoryLimit,
		SwapLimit:      raw.SwapLimit,
		PidsLimit:      raw.PidsLimit,
		DiskLimit:      boundsDisk(raw.Driver, backing(raw.DriverStatus)),
		StorageDriver:  raw.Driver,
		Driver:         raw.Driver,
		DataRoot:       raw.DockerRootDir,
		Run:            life.id,
		StartedAt:      life.started,
	}
	if fs := backing(raw.DriverStatus); fs != "" {
		info.StorageDriver += " on " + fs
	}
	if c != nil {
		info.APIVersion = c.offered
		info.StartInterval = versions.GreaterThanOrEqualTo(c.ClientVersion(), startIntervalVersion)
	}
	return info
}

// backing returns the name of the filesystem below the storage driver, or "".
func backing(status [][2]string) string {
	for _, pair := range status {
		if pair[0] == "Backing Filesystem" {
			return pair[1]
		}
	}
	return ""
}

// boundsDisk reports whether a storage driver has a size for each container. That of overlay2 is a quota of xfs, and needs
// its mount option pquota, which the engine does not tell.
func boundsDisk(driver, backing string) bool {
	switch driver {
	case "btrfs", "zfs", "devicemapper":
		return true
	case "overlay2":
		return backing == "xfs"
	}
	return false
}

var (
	// gpuRuntimes are the runtimes that the makers' tools register with the engine. gpuHelpers are what the engine itself
	// looks for in its PATH when it starts (20.10: the first one only).
	gpuRuntimes = []string{"nvidia", "amd"}
	gpuHelpers  = []string{"nvidia-container-runtime-hook", "amd-container-runtime"}
	// helperDirs are where a service's PATH leads.
	helperDirs = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
)

// seesGPUs reports whether the engine will take a request for GPUs. It does not tell; its rule is that one of gpuHelpers
// was in its PATH when it started. We look there if it is on this host, or else for a runtime that is installed together
// with them. A wrong yes ends in a start that is refused.
func (e *Engine) seesGPUs(runtimes []string, dirs []string) bool {
	for _, name := range gpuRuntimes {
		if slices.Contains(runtimes, name) {
			return true
		}
	}
	if e.host.network != "unix" {
		return false
	}
	for _, dir := range dirs {
		for _, name := range gpuHelpers {
			st, err := os.Stat(filepath.Join(dir, name))
			if err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
				return true
			}
		}
	}
	return false
}
