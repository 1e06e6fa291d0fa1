package dockerx

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/system"
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
	// What the engine and its kernel can bound. DiskLimit is true where the storage driver may be able to; the create has
	// the last word.
	CPULimit, MemoryLimit, SwapLimit, PidsLimit, DiskLimit bool
	// StorageDriver is the engine's word, for messages: "overlay2 on extfs".
	StorageDriver string
	// GPUs says that the engine can give devices to containers.
	GPUs bool
	// StartInterval says that Healthcheck.StartInterval is understood.
	StartInterval bool
	// Run identifies this life of the engine's process: opaque, equal as long as the process lives, different after it
	// was restarted or the host was rebooted. Empty when there is no way to tell; an empty one says nothing about death.
	// See runSource.identify for what it is made of and where that is weak.
	Run string
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
		if before != after {
			return fmt.Errorf("the engine was restarted while it was asked: %w", errdefs.ErrUnavailable)
		}
		info = infoOf(raw, e.current.Load(), after)
		return nil
	})
	if err != nil {
		return Info{}, fmt.Errorf("engine info: %w", err)
	}
	return info, nil
}

func infoOf(raw system.Info, c *negotiated, run string) Info {
	info := Info{EngineID: raw.ID, Version: raw.ServerVersion, LiveRestore: raw.LiveRestoreEnabled, Run: run}
	if c != nil {
		info.APIVersion = c.offered
	}
	return info
}
