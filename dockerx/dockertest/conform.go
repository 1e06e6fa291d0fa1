package dockertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
)

// Subject is an engine with the methods of dockerx.Engine, whose objects the suite can also change as another client would.
type Subject interface {
	Info(ctx context.Context) (dockerx.Info, error)

	ListContainers(ctx context.Context, labels map[string]string) ([]dockerx.Container, error)
	InspectContainer(ctx context.Context, id string) (dockerx.ContainerDetail, error)
	MeasureContainer(ctx context.Context, id string) (int64, error)
	CreateContainer(ctx context.Context, spec dockerx.ContainerSpec) (string, error)
	StartContainer(ctx context.Context, id string) error
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
	PauseContainer(ctx context.Context, id string) error
	UnpauseContainer(ctx context.Context, id string) error
	UpdateContainer(ctx context.Context, id string, limits dockerx.Limits) error
	Usage(ids []string) map[string]dockerx.Usage

	StatPath(ctx context.Context, id, name string) (dockerx.PathInfo, error)
	ReadLogs(ctx context.Context, id string, tail int) ([]dockerx.LogRecord, error)
	ReadTar(ctx context.Context, id, name string, read func(io.Reader) error) error
	ReadContainerFile(ctx context.Context, id, name string, limit int64) ([]byte, error)
	WriteTar(ctx context.Context, id, dir string, within time.Duration, tar io.Reader) error

	ListNetworks(ctx context.Context, labels map[string]string) ([]dockerx.Network, error)
	CreateNetwork(ctx context.Context, spec dockerx.NetworkSpec) (dockerx.Network, error)
	RemoveNetwork(ctx context.Context, id string) error
	InspectNetwork(ctx context.Context, id string) (dockerx.Network, error)
	ConnectNetwork(ctx context.Context, networkID, containerID string, aliases []string) error

	InspectImage(ctx context.Context, ref string) (dockerx.Image, error)
	EnsureImage(ctx context.Context, ref string, o dockerx.PullOptions) (dockerx.Image, error)

	CommitContainer(ctx context.Context, id string, labels map[string]string) (string, error)
	RewriteImage(ctx context.Context, layersOf, configOf, ref string, labels map[string]string) (dockerx.Image, error)
	BuildImage(ctx context.Context, spec dockerx.BuildSpec) (string, error)
	ListImages(ctx context.Context, labels map[string]string) ([]dockerx.LocalImage, error)
	RemoveImage(ctx context.Context, id string) error

	VolumeExists(ctx context.Context, name string) (bool, error)
	CreateVolume(ctx context.Context, name string, labels map[string]string) error
	ListVolumes(ctx context.Context, labels map[string]string) ([]dockerx.Volume, error)
	RemoveVolume(ctx context.Context, name string) error
	ListVolumeUsers(ctx context.Context, name string) ([]dockerx.Container, error)

	Events(ctx context.Context, since time.Time, labels map[string]string, ready func(), handle func(dockerx.Event)) error

	// KillOutside kills a running container.
	KillOutside(id string)
	// RemoveVolumeOutside removes a volume, if there is one of that name.
	RemoveVolumeOutside(name string)
	// DisconnectOutside disconnects a running container from all its networks, and returns when that is done.
	DisconnectOutside(id string)
}

// ConformImage is the image of Conform's containers; unique per process, so that its owner can remove it. It has /bin/sleep
// and sets USER nobody, WORKDIR /tmp, ENV A=image C=image, ENTRYPOINT ["/bin/sleep"] and
// CMD ["900"].
var ConformImage = fmt.Sprint("agbox-conform:", os.Getpid())

// Conform checks the behaviour of an engine that callers of dockerx rely on. newEngine returns an engine that has
// ConformImage; it is called for each check, and may return the same or a new one. All objects carry unique names and labels
// and are removed afterwards, so the engine may be in use by others.
func Conform(t *testing.T, newEngine func(testing.TB) Subject) {
	checks := []struct {
		name  string
		check func(*world)
	}{
		{"info identifies one run of the engine", checkInfo},
		{"a container's lifecycle", checkLifecycle},
		{"stop and remove of a removed container succeed", checkGone},
		{"a container's name is in use until it is removed", checkNameTaken},
		{"invalid container specs are refused", checkRefusals},
		{"a container without a network has none", checkNoNetwork},
		{"limits are set, changed and removed", checkLimits},
		{"the usage of containers is read while they run", checkUsage},
		{"what a container has written is measured", checkMeasure},
		{"ports are published while a container runs, and each once", checkPorts},
		{"a container is frozen and thawed", checkPause},
		{"a frozen container can be stopped, killed and removed", checkEndOfFrozen},
		{"a container that does not run is not frozen", checkPauseRefusals},
		{"a healthcheck's verdict holds while a container is frozen", checkFrozenHealth},
		{"an inspection shows a container's configuration", checkConfig},
		{"a healthcheck has a verdict while a container runs", checkHealth},
		{"settings that the engine lacks are refused", checkSettings},
		{"files are accessible in running and stopped containers", checkFiles},
		{"an archive is unpacked into a container", checkWriteTar},
		{"an archive that can't be unpacked is refused", checkWriteTarRefusals},
		{"lists show the objects with the labels", checkLabels},
		{"a network exists until it is removed, which fails while it is in use", checkNetwork},
		{"networks of one name are distinguished by ID", checkDoubledNetworks},
		{"a network is found by ID and by name", checkInspectNetwork},
		{"a container is connected to a recreated network", checkConnect},
		{"a disconnect is an event, also at the exit of a container", checkDisconnect},
		{"images are found or not", checkImages},
		{"a container's files become an image, without its configuration", checkCommit},
		{"a commit neither freezes nor thaws", checkCommitFreezesNothing},
		{"an image is built in steps, which are a cache", checkBuild},
		{"a build that fails or is cancelled leaves no container and no named image", checkBuildEnds},
		{"volumes exist until they are removed", checkVolumes},
		{"a container creates its volumes and keeps them from removal", checkVolumeMounts},
		{"volumes without a name are removed with their container", checkOwnVolumes},
		{"events report changes of the objects with the labels", checkEvents},
		{"events are replayed from a given time", checkReplay},
		{"a stream ends with its context", checkStreamEnd},
		{"an expired context cancels a call", checkContext},
	}
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.check(newWorld(t, newEngine(t))) })
	}
}

var worlds atomic.Int64

// world is the environment of one check: an engine, and a label that all its objects have.
type world struct {
	*testing.T
	e      Subject
	ctx    context.Context
	name   string // prefix of names, and value of the label
	labels map[string]string
}

const worldLabel = "io.github.agbox.dockertest"

func newWorld(t *testing.T, e Subject) *world {
	name := fmt.Sprintf("agbox-conform-%s-%d-%d", time.Now().Format("150405.000000")[7:], os.Getpid(), worlds.Add(1))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	w := &world{T: t, e: e, ctx: ctx, name: name, labels: map[string]string{worldLabel: name}}
	t.Cleanup(func() {
		defer cancel()
		w.clean()
	})
	return w
}

// clean removes everything with our label.
func (w *world) clean() {
	for _, c := range must(w.e.ListContainers(w.ctx, w.labels))(w) {
		w.ok(w.e.RemoveContainer(w.ctx, c.ID))
	}
	for _, n := range must(w.e.ListNetworks(w.ctx, w.labels))(w) {
		w.ok(w.e.RemoveNetwork(w.ctx, n.ID))
	}
	w.removeImages()
	w.e.RemoveVolumeOutside(w.name)
}

// removeImages removes all images with our label, those first on which no other was built.
func (w *world) removeImages() {
	w.Helper()
	all := must(w.e.ListImages(w.ctx, w.labels))(w)
	for len(all) > 0 {
		i := slices.IndexFunc(all, func(i dockerx.LocalImage) bool {
			return !slices.ContainsFunc(all, func(child dockerx.LocalImage) bool { return child.Parent == i.ID })
		})
		w.ok(w.e.RemoveImage(w.ctx, all[i].ID))
		all = slices.Delete(all, i, i+1)
	}
}

// must returns the answer of a call that must succeed.
func must[T any](answer T, err error) func(*world) T {
	return func(w *world) T {
		w.Helper()
		w.ok(err)
		return answer
	}
}

// errOf drops the answer of a call.
func errOf[T any](_ T, err error) error { return err }

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// refused wants an error of this class of errdefs, and of no other class that callers check.
func (w *world) refused(err error, class error) {
	w.Helper()
	for c, is := range map[error]func(error) bool{
		errdefs.ErrNotFound:           errdefs.IsNotFound,
		errdefs.ErrAlreadyExists:      errdefs.IsAlreadyExists,
		errdefs.ErrInvalidArgument:    errdefs.IsInvalidArgument,
		errdefs.ErrFailedPrecondition: errdefs.IsFailedPrecondition,
		errdefs.ErrUnavailable:        errdefs.IsUnavailable,
	} {
		if is(err) != errors.Is(c, class) {
			w.Errorf("error %q: is it %v? %t", err, c, is(err))
		}
	}
}

func (w *world) network(name string) dockerx.Network {
	w.Helper()
	return must(w.e.CreateNetwork(w.ctx, dockerx.NetworkSpec{Name: name, Labels: maps.Clone(w.labels)}))(w)
}

func (w *world) spec(name, networkID string) dockerx.ContainerSpec {
	return dockerx.ContainerSpec{
		Name:       w.name + name,
		Image:      ConformImage,
		Entrypoint: []string{"/bin/sleep", "1000"},
		Labels:     maps.Clone(w.labels),
		NetworkID:  networkID,
	}
}

func (w *world) create(spec dockerx.ContainerSpec) string {
	w.Helper()
	return must(w.e.CreateContainer(w.ctx, spec))(w)
}

func (w *world) inspect(id string) dockerx.ContainerDetail {
	w.Helper()
	return must(w.e.InspectContainer(w.ctx, id))(w)
}
