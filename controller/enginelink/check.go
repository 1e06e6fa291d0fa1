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
	"github.com/agbox/agbox/controller/plan"
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
	_, _, err := c.marker(ctx)
	return err
}

// CheckSame checks that the engine is ours, was not restarted since run, and has the recorded storage driver and data root.
// Errors: ErrUnavailable, ErrForeign, *MovedError.
func (c Checker) CheckSame(ctx context.Context, run *storev1.EngineRun) error {
	info, err := c.unchanged(ctx, run)
	if err != nil {
		return err
	}
	if _, _, err := c.identity(ctx, info); err != nil {
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

// marker distinguishes our engine from another one by a labelled volume that was created at the first start. The engine's own ID proves
// nothing. An engine without the marker is ours if it holds any object of a live record: the marker was pruned, or this is the first start.
// A marker that exists but is not recorded was created by a daemon that died before it recorded it.
func (c Checker) marker(ctx context.Context) (exists, recorded bool, err error) {
	if exists, err = c.engine.VolumeExists(ctx, naming.MarkerVolume(c.store.InstanceID())); err != nil {
		return false, false, err
	}
	if recorded, err = c.store.MarkerWritten(ctx); err != nil || exists || !recorded {
		return exists, recorded, err
	}
	known, err := c.holdsOurs(ctx)
	if err == nil && !known {
		err = ErrForeign
	}
	return false, true, err
}

// identity compares the engine's storage driver and data root, is, with the recorded ones, was. Both are nil if they are equal. Different
// ones must be recorded if none are recorded, or if the engine lists every recorded sandbox, as after an operator moved the data root.
// Errors: *MovedError, and those of the engine and the store.
func (c Checker) identity(ctx context.Context, info dockerx.Info) (was, is *storev1.EngineIdentity, err error) {
	is = &storev1.EngineIdentity{StorageDriver: info.Driver, DataRoot: info.DataRoot}
	was, err = c.store.EngineIdentity(ctx)
	if err != nil && !errdefs.IsDataLoss(err) { // a damaged record counts as none
		return nil, nil, err
	}
	if proto.Equal(is, was) {
		return nil, nil, nil
	}
	if was != nil {
		all, err := c.showsAll(ctx)
		if err != nil {
			return nil, nil, err
		}
		if !all {
			return nil, nil, &MovedError{was, is}
		}
	}
	return was, is, nil
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

// holdsOurs reports whether the engine has an object of a live record, or no live record should have one. While records are being rebuilt, a
// sandbox with a directory may be one that is not recorded yet, whichever instance its objects name.
func (c Checker) holdsOurs(ctx context.Context) (bool, error) {
	expected, list := map[string]bool{}, c.objects.OfAnyDaemon // by the name of the directory
	for _, id := range c.store.LiveIDs() {
		expected[execjournal.RunName(id)] = true
	}
	if c.store.RebuildPending() {
		dirs, err := c.dirs()
		if err != nil {
			return false, err
		}
		for _, d := range dirs {
			if d.SandboxID == "" { // not a directory of logs
				expected[filepath.Base(d.Path)] = true
			}
		}
	} else {
		list = func(ctx context.Context) (map[string]*plan.World, error) { return c.objects.Worlds(ctx, "") }
	}
	if len(expected) == 0 {
		return true, nil
	}
	worlds, err := list(ctx)
	for id := range worlds {
		if expected[execjournal.RunName(id)] {
			return true, nil
		}
	}
	return false, err
}
