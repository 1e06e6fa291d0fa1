package enginelink

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/controller/owned"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/store"
)

// ErrForeign means that the engine is not the one that holds this daemon's objects.
var ErrForeign = errors.New("this is another Docker engine than before: it holds neither the marker nor any object of " +
	"this daemon; nothing is judged until `agbox engine confirm` says that it is the right one")

// MovedError means that the engine keeps its containers in another place than before.
type MovedError struct{ was, is *storev1.EngineIdentity }

func (e *MovedError) Error() string {
	return fmt.Sprintf("the Docker engine now keeps its containers in %s with storage driver %s, and before in %s with %s: it does "+
		"not show those of this daemon; agboxd changes no sandbox until dockerd runs as before, or `agbox engine confirm` says that they "+
		"are gone", e.is.GetDataRoot(), e.is.GetStorageDriver(), e.was.GetDataRoot(), e.was.GetStorageDriver())
}

// Records is the part of the store about the engine, and about the sandboxes that it should hold.
type Records interface {
	InstanceID() string
	LiveIDs() []string
	Sandbox(ctx context.Context, id string) (store.Sandbox, error)
	RebuildPending() bool
	MarkerWritten(ctx context.Context) (bool, error)
	EngineIdentity(ctx context.Context) (*storev1.EngineIdentity, error)
}

// Questions are the calls that show whether the engine is ours.
type Questions interface {
	Info(ctx context.Context) (dockerx.Info, error)
	InspectContainer(ctx context.Context, id string) (dockerx.ContainerDetail, error)
	VolumeExists(ctx context.Context, name string) (bool, error)
}

// Checker checks whether the engine is ours. It changes neither the engine nor the store.
type Checker struct {
	store   Records
	engine  Questions
	objects owned.Objects
	dirs    func() ([]execjournal.SandboxDir, error)
	bootID  string
}

// CheckMarker checks that the engine is ours. Errors: ErrForeign, and those of the engine and the store.
func (c Checker) CheckMarker(ctx context.Context) error {
	_, err := c.marker(ctx)
	return err
}

// CheckSame checks that the engine is ours, was not restarted since run, and has the recorded storage driver and data root.
// Errors: ErrUnavailable, ErrForeign, *MovedError.
func (c Checker) CheckSame(ctx context.Context, run *storev1.EngineRun) error {
	info, err := c.unchanged(ctx, run)
	if err != nil {
		return err
	}
	if _, err := c.identity(ctx, info); err != nil {
		return err
	}
	return c.CheckMarker(ctx)
}

// RunOf returns the life of the engine that gave info.
func (c Checker) RunOf(info dockerx.Info) *storev1.EngineRun {
	return &storev1.EngineRun{BootId: c.bootID, EngineStart: info.Run}
}

// unchanged reads the engine's info. Errors: ErrUnavailable if it was restarted since run.
func (c Checker) unchanged(ctx context.Context, run *storev1.EngineRun) (dockerx.Info, error) {
	info, err := c.engine.Info(ctx)
	if err == nil && !proto.Equal(c.RunOf(info), run) {
		err = fmt.Errorf("the engine was restarted during the observation: %w", errdefs.ErrUnavailable)
	}
	return info, err
}

// markerState is what must still be done about the marker of an engine that is ours.
type markerState int

const (
	markerDone   markerState = iota
	markerUnsaid             // it exists but is not recorded: the daemon that created it died before it recorded that
	markerDue                // it is missing: at the first start, or because it was pruned
)

// marker distinguishes our engine from another one by a labelled volume that was created at the first start. The engine's own ID proves
// nothing. An engine without the marker is ours if it holds any object of a live record.
func (c Checker) marker(ctx context.Context) (markerState, error) {
	there, err := c.engine.VolumeExists(ctx, naming.MarkerVolume(c.store.InstanceID()))
	if err != nil {
		return markerDone, err
	}
	written, err := c.store.MarkerWritten(ctx)
	switch {
	case err != nil || there && written:
		return markerDone, err
	case there:
		return markerUnsaid, nil
	case written:
		known, err := c.holdsOurs(ctx)
		if err != nil {
			return markerDone, err
		}
		if !known {
			return markerDone, ErrForeign
		}
	}
	return markerDue, nil
}

// identityChange is an identity of the engine to record; was is nil if none is recorded.
type identityChange struct{ was, is *storev1.EngineIdentity }

// identity compares the engine's storage driver and data root with the recorded ones. Different ones must be recorded if the engine lists
// every recorded sandbox, as after an operator moved the data root. Nil: they are recorded already. Errors: *MovedError, and those of the
// engine and the store.
func (c Checker) identity(ctx context.Context, info dockerx.Info) (*identityChange, error) {
	is := &storev1.EngineIdentity{StorageDriver: info.Driver, DataRoot: info.DataRoot}
	was, err := c.store.EngineIdentity(ctx)
	if err != nil && !errdefs.IsDataLoss(err) { // a damaged record counts as none
		return nil, err
	}
	if proto.Equal(is, was) {
		return nil, nil
	}
	if was != nil {
		all, err := c.showsAll(ctx)
		if err != nil {
			return nil, err
		}
		if !all {
			return nil, &MovedError{was, is}
		}
	}
	return &identityChange{was, is}, nil
}

// showsAll reports whether the engine lists the primary of each sandbox that should have one, and finds it by its ID: a list may be
// outdated.
func (c Checker) showsAll(ctx context.Context) (bool, error) {
	shown, err := c.objects.Primaries(ctx)
	if err != nil {
		return false, err
	}
	for _, id := range c.store.LiveIDs() {
		sb, err := c.store.Sandbox(ctx, id)
		primary := sb.Desired.GetObjects().GetPrimaryId()
		if err != nil || primary == "" || sb.Progress.GetMissing() {
			continue
		}
		if !shown[id] {
			return false, nil
		}
		switch _, err := c.engine.InspectContainer(ctx, primary); {
		case errdefs.IsNotFound(err):
			return false, nil
		case err != nil:
			return false, err
		}
	}
	return true, nil
}

// holdsOurs reports whether the engine has an object of a live record, or no live record should have one.
func (c Checker) holdsOurs(ctx context.Context) (bool, error) {
	live := map[string]bool{}
	for _, id := range c.store.LiveIDs() {
		live[id] = true
	}
	if c.store.RebuildPending() {
		return c.holdsTraces(ctx, live)
	}
	if len(live) == 0 {
		return true, nil
	}
	containers, err := c.objects.Containers(ctx, "")
	if err != nil {
		return false, err
	}
	for _, ct := range containers {
		if live[ct.Labels[naming.SandboxID]] {
			return true, nil
		}
	}
	networks, err := c.objects.Networks(ctx, "")
	if err != nil {
		return false, err
	}
	for _, n := range networks {
		if live[n.Labels[naming.SandboxID]] {
			return true, nil
		}
	}
	return false, nil
}

// holdsTraces replaces holdsOurs while records are being rebuilt. A sandbox with a directory may be one that is not recorded yet, whichever
// instance its objects name; without any directory no object is expected.
func (c Checker) holdsTraces(ctx context.Context, live map[string]bool) (bool, error) {
	dirs, err := c.dirs()
	if err != nil {
		return false, err
	}
	runs := map[string]bool{}
	for _, d := range dirs {
		if d.SandboxID == "" { // not a directory of logs
			runs[filepath.Base(d.Path)] = true
		}
	}
	if len(live)+len(runs) == 0 {
		return true, nil
	}
	ids, err := c.objects.OfAnyDaemon(ctx)
	for _, id := range ids {
		if live[id] || runs[execjournal.RunName(id)] {
			return true, nil
		}
	}
	return false, err
}
