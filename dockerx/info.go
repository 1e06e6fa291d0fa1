package dockerx

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/versions"
	"github.com/docker/docker/client"
)

// Info is what an engine reports about itself.
type Info struct {
	// EngineID is the engine's own ID. It is not unique: two engines on one host may share it (observed with 20.10), and it
	// may change when the engine is upgraded.
	EngineID string
	// Version and APIVersion are the engine's, as "20.10.24" and "1.41".
	Version, APIVersion string
	// LiveRestore says that containers keep running while the engine is down.
	LiveRestore bool
	// Runtimes are the valid names for ContainerSpec.Runtime, sorted.
	Runtimes []string
	// DefaultRuntime is used for a container whose spec names none.
	DefaultRuntime string
	// The limits that the engine and its kernel support. DiskLimit is true where the storage driver may support one; the
	// create may still refuse.
	CPULimit, MemoryLimit, SwapLimit, PidsLimit, DiskLimit bool
	// StorageDriver is for messages: "overlay2 on extfs".
	StorageDriver string
	// Driver and DataRoot are where the engine keeps its containers: "overlay2", "/var/lib/docker". An engine restarted with
	// other values lists other containers, but the same volumes and networks (observed with 20.10).
	Driver, DataRoot string
	// GPUs says that the engine can assign GPUs to containers, as far as visible from outside: see seesGPUs.
	GPUs bool
	// AsksFromHost: the engine asks its own DNS servers for containers from its own network, not from theirs. Assumed from API 1.44 (Docker 25) on.
	AsksFromHost bool
	// StartInterval says that Healthcheck.StartInterval is supported.
	StartInterval bool
	// KernelVersion and System are for messages: "6.1.0-28-amd64", "Debian GNU/Linux 12 (bookworm)".
	KernelVersion, System string
	// CgroupVersion is "1" or "2"; empty when unknown.
	CgroupVersion string
	// PrivateCgroups says that by default a container sees only its own part of the cgroup hierarchy.
	PrivateCgroups bool
	// Freezes says that the engine can freeze containers. A rootless one without control groups can't.
	Freezes bool
	// SeccompProfile is the filter of system calls that containers get: "default" or "builtin", the path of a file, or "unconfined". Empty:
	// the engine or its kernel has none.
	SeccompProfile string
	// UsersRemapped says that user 0 of a container is an unprivileged user of the host, because of userns-remap or because the engine is
	// Rootless.
	UsersRemapped, Rootless bool
	// OtherUser is the user of this host whose process serves a Rootless engine, if that is not the user of this process. 0: it is, or unknown.
	OtherUser int
	// RootUID and RootGID are the host's numbers of user 0 and group 0 of containers, of an engine with userns-remap; otherwise 0.
	RootUID, RootGID int
	// Run identifies one run of the engine's process: opaque, constant while the process lives, different after the engine
	// was restarted or the host was rebooted. Empty when unknown; an empty one does not mean that the engine was restarted.
	// See runSource.identify for its sources and their limits.
	Run string
	// StartedAt is when this run started, by the host's present wall clock, accurate to about 10 ms; zero when unknown.
	StartedAt time.Time
}

// Info queries the engine. Errors: ErrUnavailable, also when the engine was restarted during the call, or is ending. So a container that had
// ended before a call that succeeds did not end because the engine was ending.
func (e *Engine) Info(ctx context.Context) (Info, error) {
	return ask(ctx, e, OpInfo, "engine info", func(ctx context.Context, c *client.Client) (Info, error) {
		ctx = accepting(ctx)
		before, err := e.run.identify(ctx, e.host, c)
		if err != nil {
			return Info{}, err
		}
		raw, err := c.Info(ctx)
		if err != nil {
			return Info{}, err
		}
		after, err := e.run.identify(ctx, e.host, c)
		if err == nil && before.id != after.id {
			err = fmt.Errorf("the engine was restarted during the call: %w", errdefs.ErrUnavailable)
		}
		info := infoOf(raw, e.current.Load(), after)
		info.GPUs = e.seesGPUs(info.Runtimes, helperDirs)
		if info.Rootless && e.host.network == "unix" {
			if cred, err := peer(ctx, e.host); err == nil && int(cred.Uid) != os.Geteuid() {
				info.OtherUser = int(cred.Uid)
			}
		}
		return info, err
	})
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
		KernelVersion:  raw.KernelVersion,
		System:         raw.OperatingSystem,
		CgroupVersion:  raw.CgroupVersion,
		Freezes:        raw.CgroupDriver != "none",
		Run:            life.id,
		StartedAt:      life.started,
	}
	if fs := backing(raw.DriverStatus); fs != "" {
		info.StorageDriver += " on " + fs
	}
	info.readSecurity(raw.SecurityOptions)
	if info.UsersRemapped && !info.Rootless {
		info.RootUID, info.RootGID = remappedRoot(raw.DockerRootDir)
	}
	if c != nil {
		info.APIVersion = c.offered
		info.AsksFromHost = versions.GreaterThanOrEqualTo(c.offered, asksFromHostVersion)
		info.StartInterval = versions.GreaterThanOrEqualTo(c.ClientVersion(), startIntervalVersion)
	}
	return info
}

// readSecurity reads options such as "name=seccomp,profile=default".
func (i *Info) readSecurity(options []string) {
	for _, option := range options {
		name, profile, _ := strings.Cut(option, ",")
		switch name {
		case "name=seccomp":
			i.SeccompProfile = strings.TrimPrefix(profile, "profile=")
		case "name=cgroupns":
			i.PrivateCgroups = true
		case "name=userns":
			i.UsersRemapped = true
		case "name=rootless":
			i.UsersRemapped, i.Rootless = true, true
		}
	}
}

// remappedRoot reads the root of containers from the data root of an engine with userns-remap: the engine appends "UID.GID" to the configured
// one. 0: it is not there.
func remappedRoot(dataRoot string) (uid, gid int) {
	u, g, _ := strings.Cut(filepath.Base(dataRoot), ".")
	uid, uidErr := strconv.Atoi(u)
	gid, gidErr := strconv.Atoi(g)
	if uidErr != nil || gidErr != nil || uid <= 0 || gid <= 0 {
		return 0, 0
	}
	return uid, gid
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

// boundsDisk reports whether a storage driver can limit the disk space of each container. overlay2 uses a quota of xfs,
// and needs its mount option pquota, which the engine does not report.
func boundsDisk(driver, backing string) bool {
	return driver == "overlay2" && backing == "xfs" || slices.Contains([]string{"btrfs", "zfs", "devicemapper"}, driver)
}

var (
	// gpuRuntimes are the runtimes that the vendors' tools register with the engine. gpuHelpers are the programs that the
	// engine itself searches in its PATH when it starts (20.10: only the first).
	gpuRuntimes = []string{"nvidia", "amd"}
	gpuHelpers  = []string{"nvidia-container-runtime-hook", "amd-container-runtime"}
	// helperDirs are the directories of a service's PATH.
	helperDirs = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
)

// seesGPUs reports whether the engine probably accepts a request for GPUs. The engine does not report it; it requires that
// one of gpuHelpers was in its PATH when it started. seesGPUs searches helperDirs when the engine is on this host, and
// otherwise the runtimes that are installed together with the helpers. A wrong yes makes the start fail.
func (e *Engine) seesGPUs(runtimes []string, dirs []string) bool {
	if slices.ContainsFunc(gpuRuntimes, func(name string) bool { return slices.Contains(runtimes, name) }) {
		return true
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
