package sandbox

import (
	"cmp"
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
)

// volumes returns the volumes of a container that is about to be created: named ones, and those of the sandbox. The create makes the missing
// ones, with their labels, so no crash leaves a volume that is not known to be ours. Errors: ErrUnavailable also while a container of another sandbox mounts one of them.
func (p *pass) volumes(ctx context.Context, service string) ([]dockerx.VolumeMount, error) {
	wanted, mounts := p.sb.Spec.GetVolumes(), p.ownVolumes()
	if service != "" {
		wanted, mounts = ServiceSpec(p.sb.Spec, service).GetVolumes(), nil
	}
	switch {
	case len(wanted) == 0:
		return mounts, nil
	case p.sb.Name == "": // its record was rebuilt without it
		return nil, fmt.Errorf("volumes belong to the name of a sandbox, and this one has none: %w", errdefs.ErrInvalidArgument)
	}
	existing, err := p.o.Objects.Volumes(ctx, p.sb.Name)
	if err != nil {
		return nil, err
	}
	for _, v := range wanted {
		m := p.newVolume(v)
		for _, there := range existing {
			if there.Labels[naming.Volume] == v.GetName() {
				m.Name = there.Name // that of a former instance differs
				if err := p.checkUsers(ctx, v.GetName(), there.Name); err != nil {
					return nil, err
				}
				break
			}
		}
		mounts = append(mounts, m)
	}
	return mounts, nil
}

func (p *pass) newVolume(v *agboxv1.VolumeSpec) dockerx.VolumeMount {
	instance := p.o.Store.InstanceID()
	return dockerx.VolumeMount{
		Name: naming.VolumeOf(instance, p.sb.Name, v.GetName()), Target: v.GetTarget(),
		Labels: map[string]string{
			naming.Instance: instance, naming.Component: naming.ComponentVolume, naming.SandboxName: p.sb.Name, naming.Volume: v.GetName(),
		},
	}
}

// ownVolumes returns the writable parts of a read-only root. The engine chooses their names and removes them with the container.
func (p *pass) ownVolumes() (mounts []dockerx.VolumeMount) {
	for _, dir := range validate.WritableRoots(p.sb.Spec) {
		mounts = append(mounts, dockerx.VolumeMount{Target: dir, Labels: p.labels(naming.ComponentRoot)})
	}
	return mounts
}

// checkUsers refuses a volume that a container of another sandbox of ours mounts, such as one that was kept because its record was deleted
// after a failure. Containers of others are their owners' responsibility.
func (p *pass) checkUsers(ctx context.Context, volume, engineName string) error {
	users, err := p.o.Engine.ListVolumeUsers(ctx, engineName)
	if err != nil {
		return err
	}
	for _, c := range users {
		if id := c.Labels[naming.SandboxID]; id != p.rec.ID && p.o.Objects.Has(c.Labels, c.ID) {
			return fmt.Errorf("volume %s is still mounted by container %s of sandbox %s: %w", volume, c.Name, id, errdefs.ErrUnavailable)
		}
	}
	return nil
}

// removeVolumes removes the volumes of the sandbox that its container has left, and on request those of its name. The engine refuses while a
// container mounts one; the delete waits for it then.
func (p *pass) removeVolumes(ctx context.Context, s plan.Step) error {
	return p.background(ctx, s, "", removePatience, "removing its volumes", func(ctx context.Context) error {
		all, err := p.o.Objects.RootVolumes(ctx, p.rec.ID)
		if err == nil && p.sb.Desired.GetRemoveVolumes() && p.sb.Name != "" {
			var named []dockerx.Volume
			named, err = p.o.Objects.Volumes(ctx, p.sb.Name)
			all = append(all, named...)
		}
		if err != nil {
			return err
		}
		for _, v := range all {
			remove := p.audited(s, v.Name, func(ctx context.Context) error { return p.o.Engine.RemoveVolume(ctx, v.Name) })
			if err := p.containerRemovals.do(ctx, func() error { return remove(ctx) }); err != nil {
				return fmt.Errorf("volume %s: %w", cmp.Or(v.Labels[naming.Volume], v.Name), err)
			}
		}
		return nil
	})
}
