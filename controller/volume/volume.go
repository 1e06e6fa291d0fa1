// Package volume lists named volumes, and removes single ones at a user's request. A volume belongs to a sandbox's name and not to a
// sandbox, so no pass and no garbage collection ever removes one without such a request.
package volume

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/timestamppb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/auditlog"
	"github.com/agbox/agbox/controller/owned"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/metrics"
	"github.com/agbox/agbox/store"
)

// Store is the part of the store that a Keeper reads.
type Store interface {
	RebuildPending() bool
	Namesakes(name, except string) []string
	Sandbox(ctx context.Context, id string) (store.Sandbox, error)
}

// Options are the dependencies of a Keeper. All are required.
type Options struct {
	Store   Store
	Objects owned.Objects
	// Remove removes a volume of the engine. Errors: ErrFailedPrecondition while a container mounts it.
	Remove func(ctx context.Context, engineName string) error
	// Users lists the containers that mount a volume of the engine.
	Users func(ctx context.Context, engineName string) ([]dockerx.Container, error)
	// CheckMarker checks that the engine is ours.
	CheckMarker func(ctx context.Context) error
	Logger      *slog.Logger
	Metrics     *metrics.Metrics
}

// Keeper lists and removes volumes. It has no state.
type Keeper struct{ o Options }

// New returns a Keeper.
func New(o Options) *Keeper { return &Keeper{o} }

// Volumes lists the volumes of one sandbox name, or of all names if it is empty, sorted by both names. Errors: ErrUnavailable.
func (k *Keeper) Volumes(ctx context.Context, sandboxName string) ([]*agboxv1.Volume, error) {
	all, err := k.o.Objects.Volumes(ctx, sandboxName)
	if err != nil {
		return nil, err
	}
	var out []*agboxv1.Volume
	for _, v := range all {
		one := &agboxv1.Volume{Name: v.Labels[naming.Volume], SandboxName: v.Labels[naming.SandboxName], EngineName: v.Name}
		if !v.Created.IsZero() {
			one.CreatedAt = timestamppb.New(v.Created)
		}
		if one.SandboxId, err = k.holder(ctx, one.GetSandboxName(), one.GetName()); err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b *agboxv1.Volume) int {
		return cmp.Or(cmp.Compare(a.GetSandboxName(), b.GetSandboxName()), cmp.Compare(a.GetName(), b.GetName()), cmp.Compare(a.GetEngineName(), b.GetEngineName()))
	})
	return out, nil
}

// holder returns the ID of the live sandbox with a name that has the volume in its spec and is not being deleted; empty: there is none.
func (k *Keeper) holder(ctx context.Context, sandboxName, volume string) (string, error) {
	for _, id := range k.o.Store.Namesakes(sandboxName, "") {
		sb, err := k.o.Store.Sandbox(ctx, id)
		switch {
		case errdefs.IsNotFound(err), errdefs.IsDataLoss(err):
			continue
		case err != nil:
			return "", err
		}
		if sb.Desired.GetRunState() != storev1.RunState_RUN_STATE_DELETE && mounts(sb.Spec, volume) {
			return id, nil
		}
	}
	return "", nil
}

// mounts reports whether a container of a sandbox mounts the volume.
func mounts(spec *agboxv1.CreateSpec, volume string) bool {
	named := func(v *agboxv1.VolumeSpec) bool { return v.GetName() == volume }
	return slices.ContainsFunc(spec.GetVolumes(), named) ||
		slices.ContainsFunc(slices.Concat(spec.GetRequiredServices(), spec.GetOptionalServices()), func(s *agboxv1.ServiceSpec) bool {
			return slices.ContainsFunc(s.GetVolumes(), named)
		})
}

// RemoveVolume removes a volume with its content. Cut off by a crash, it has removed the volume or not; it can be repeated. Errors: Refusals
// VOLUME_NOT_FOUND, and VOLUME_IN_USE while a live sandbox of the name has it in its spec or a container mounts it; ErrUnavailable also
// while records are being rebuilt.
func (k *Keeper) RemoveVolume(ctx context.Context, sandboxName, volume string) error {
	if k.o.Store.RebuildPending() {
		return fmt.Errorf("records are being rebuilt; whether volume %s/%s is in use is known when that is done: %w", sandboxName, volume, errdefs.ErrUnavailable)
	}
	if err := k.o.CheckMarker(ctx); err != nil {
		return err
	}
	id, err := k.holder(ctx, sandboxName, volume)
	if err != nil {
		return err
	}
	if id != "" {
		return inUse(sandboxName, volume, fmt.Sprintf("is in the spec of sandbox %s: delete the sandbox first", sandboxName))
	}
	all, err := k.o.Objects.Volumes(ctx, sandboxName)
	if err != nil {
		return err
	}
	found := false
	for _, v := range all {
		if v.Labels[naming.Volume] == volume {
			found = true
			if err := k.remove(ctx, v.Name); err != nil {
				return k.refused(ctx, sandboxName, volume, v.Name, err)
			}
		}
	}
	if !found {
		return refusal("VOLUME_NOT_FOUND", errdefs.ErrNotFound, sandboxName, volume, "was not found")
	}
	return nil
}

// remove removes a volume, with the metric and the audit line of a step.
func (k *Keeper) remove(ctx context.Context, engineName string) error {
	begun := time.Now()
	err := k.o.Remove(ctx, engineName)
	k.o.Metrics.Step(string(plan.RemoveVolumes), err)
	auditlog.Write(k.o.Logger, "", plan.Step{Kind: plan.RemoveVolumes, ID: engineName, Reason: plan.BecauseRequested}, engineName, time.Since(begun), err)
	return err
}

// refused names the containers that the engine does not.
func (k *Keeper) refused(ctx context.Context, sandboxName, volume, engineName string, err error) error {
	if !errdefs.IsFailedPrecondition(err) {
		return err
	}
	users, listErr := k.o.Users(ctx, engineName)
	if listErr != nil || len(users) == 0 {
		return inUse(sandboxName, volume, "is mounted by a container")
	}
	return inUse(sandboxName, volume, fmt.Sprintf("is mounted by container %s", users[0].Name))
}

func inUse(sandboxName, volume, why string) error {
	return refusal("VOLUME_IN_USE", errdefs.ErrFailedPrecondition, sandboxName, volume, why)
}

func refusal(reason string, class error, sandboxName, volume, why string) error {
	return &store.Refusal{
		Reason: reason, Class: class, Message: fmt.Sprintf("volume %s/%s %s", sandboxName, volume, why),
		Metadata: map[string]string{"sandbox_name": sandboxName, "volume_name": volume},
	}
}
