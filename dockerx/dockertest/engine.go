package dockertest

import (
	"context"
	"io"
	"time"

	"github.com/agbox/agbox/dockerx"
)

// Engine is the common interface of dockerx.Engine and Fake. It is for the suite: callers declare the few methods
// that they need.
type Engine interface {
	Info(ctx context.Context) (dockerx.Info, error)

	ListContainers(ctx context.Context, labels map[string]string) ([]dockerx.Container, error)
	InspectContainer(ctx context.Context, id string) (dockerx.ContainerDetail, error)
	CreateContainer(ctx context.Context, spec dockerx.ContainerSpec) (string, error)
	StartContainer(ctx context.Context, id string) error
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
	PauseContainer(ctx context.Context, id string) error
	UnpauseContainer(ctx context.Context, id string) error
	UpdateContainer(ctx context.Context, id string, limits dockerx.Limits) error

	StatPath(ctx context.Context, id, name string) (dockerx.PathInfo, error)
	ReadContainerFile(ctx context.Context, id, name string, limit int64) ([]byte, error)
	WriteTar(ctx context.Context, id, dir string, within time.Duration, tar io.Reader) error

	ListNetworks(ctx context.Context, labels map[string]string) ([]dockerx.Network, error)
	CreateNetwork(ctx context.Context, spec dockerx.NetworkSpec) (dockerx.Network, error)
	RemoveNetwork(ctx context.Context, id string) error
	InspectNetwork(ctx context.Context, id string) (dockerx.Network, error)
	ConnectNetwork(ctx context.Context, networkID, containerID string, aliases []string) error

	InspectImage(ctx context.Context, ref string) (dockerx.Image, error)
	EnsureImage(ctx context.Context, ref string, o dockerx.PullOptions) (dockerx.Image, error)

	VolumeExists(ctx context.Context, name string) (bool, error)
	CreateVolume(ctx context.Context, name string, labels map[string]string) error

	Events(ctx context.Context, since time.Time, labels map[string]string, ready func(), handle func(dockerx.Event)) error

	Close() error
}

var (
	_ Engine = (*dockerx.Engine)(nil)
	_ Engine = (*Fake)(nil)
)
