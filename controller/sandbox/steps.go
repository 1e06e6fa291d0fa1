package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/controller/queue"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/sandboxstate"
)

// run executes one step. Each step may be repeated, also after a crash.
func (p *pass) run(ctx context.Context, s plan.Step) error {
	if why := p.o.NoRoom(); why != "" && s.Kind.NeedsRoom() {
		return fmt.Errorf("%s: %w", why, errdefs.ErrUnavailable) // the engine's own error on a full disk has no class
	}
	id, files, engine := p.rec.ID, p.o.Files, p.o.Engine
	step := map[plan.Kind]func() error{
		plan.MakeInputs:       func() error { return second(files.Prepare(id)) },
		plan.EnsureImage:      func() error { return p.ensureImage(ctx, s) },
		plan.CreateNetwork:    func() error { return p.createNetwork(ctx) },
		plan.ConfineNetwork:   func() error { return p.o.Networks.Enforce(p.sb, cmp.Or(s.ID, p.networkID)) },
		plan.ConnectNetwork:   func() error { return p.connect(ctx, s) },
		plan.CreatePrimary:    func() error { return p.createContainer(ctx, s) },
		plan.CreateService:    func() error { return p.createContainer(ctx, s) },
		plan.CopyFiles:        func() error { return p.copyFiles(ctx, s) },
		plan.StartContainer:   func() error { return p.start(ctx, s) },
		plan.Release:          func() error { return p.release(ctx, s) },
		plan.RunHook:          func() error { return p.runHook(s.Index) },
		plan.CancelHook:       func() error { return p.cancelHook(s.Index) },
		plan.EndHook:          func() error { return files.Forget(id, execid.ForHook(s.Index)) },
		plan.CancelExecs:      p.cancelExecs,
		plan.UpdateLimits:     func() error { return engine.UpdateContainer(ctx, s.ID, dockerx.Limits(s.Limits)) },
		plan.StopContainer:    func() error { return p.stop(ctx, s) },
		plan.PauseContainer:   func() error { return engine.PauseContainer(ctx, s.ID) },
		plan.UnpauseContainer: func() error { return engine.UnpauseContainer(ctx, s.ID) },
		plan.RemoveContainer:  func() error { return p.removeContainer(ctx, s) },
		plan.RemoveNetwork:    func() error { return p.removeNetwork(ctx, s.ID) },
		plan.RemoveInputs:     func() error { return p.removeFiles(ctx, s, files.RemoveInputs) },
		plan.RemoveFiles:      func() error { return p.removeFiles(ctx, s, files.Remove) },
		plan.RemoveVolumes:    func() error { return p.removeVolumes(ctx, s) },

		// These change the intent. The store decides at the commit whether the change is still due.
		plan.StopIdle:     func() error { return second(p.o.Store.RequestIdleStop(ctx, id, p.set.IdleTTL, p.at)) },
		plan.Cleanup:      func() error { return second(p.o.Store.RequestCleanup(ctx, id, p.set.CleanupTTL, p.at)) },
		plan.Expire:       func() error { return second(p.o.Store.RequestExpire(ctx, id, p.at)) },
		plan.Demote:       func() error { return second(p.o.Store.Demote(ctx, id)) },
		plan.PauseCleanup: func() error { return second(p.o.Store.RequestPauseCleanup(ctx, id, p.set.StoppedGCAfter, p.at)) },
		plan.StopDead: func() error { // it may have been resumed meanwhile
			return queue.Ignore(second(p.o.Store.RequestStop(ctx, id, s.Words)), errdefs.IsFailedPrecondition)
		},
	}[s.Kind]
	if step == nil {
		return fmt.Errorf("unknown step %s", s.Kind)
	}
	return step()
}

func second[T any](_ T, err error) error { return err }

func (p *pass) cancelExecs() error {
	p.o.EnqueueExecs(p.rec.ID)
	p.o.EnqueueAgents(p.rec.ID)
	return nil
}

func (p *pass) createNetwork(ctx context.Context) error {
	spec := dockerx.NetworkSpec{
		Name: naming.Network(p.rec.ID), Labels: p.labels(naming.ComponentNetwork), PrefixBits: prefixBits(len(p.rec.Wanted.Services)),
	}
	n, err := p.o.Engine.CreateNetwork(ctx, spec)
	if errdefs.IsAlreadyExists(err) {
		return nameTaken("network", spec.Name)
	}
	p.networkID = n.ID
	return err
}

// removeNetwork removes a network, and then its packet filter rules: before that, a container may still be attached.
func (p *pass) removeNetwork(ctx context.Context, id string) error {
	err := p.o.Engine.RemoveNetwork(ctx, id)
	if err == nil {
		p.o.Networks.Release(id)
	}
	return err
}

// connect attaches a container to its network again. A service gets its name as an alias.
func (p *pass) connect(ctx context.Context, s plan.Step) error {
	var aliases []string
	if s.Service != "" {
		aliases = []string{s.Service}
	}
	return p.o.Engine.ConnectNetwork(ctx, cmp.Or(s.Network, p.networkID), s.ID, aliases)
}

// objects returns the engine's IDs of the parts if r must record them: when the sandbox has come up and they differ from the recorded ones.
// Nil: nothing to record.
func (p *pass) objects(r plan.Report) *storev1.Objects {
	state := p.rec.State
	for _, e := range r.Events {
		if s := e.GetSandboxState(); s != agboxv1.SandboxState_SANDBOX_STATE_UNSPECIFIED {
			state = s
		}
	}
	if !sandboxstate.IsWhole(state) {
		return nil
	}
	o := plan.ObjectsOf(p.rec, p.w)
	if p.networkID != "" {
		o.NetworkId = p.networkID
	}
	for service, id := range p.made {
		if service == "" {
			o.PrimaryId = id
		} else {
			o.ServiceIds[service] = id
		}
	}
	if p.rec.Standing != plan.Live || o.PrimaryId == "" || proto.Equal(o, p.rec.Objects) {
		return nil
	}
	return o
}

// prefixBits returns the prefix length of the smallest subnet that holds the containers beside the network, gateway and broadcast
// addresses.
func prefixBits(services int) int {
	return min(28, 32-bits.Len(uint(services+3)))
}

// nameTaken returns the error for a name that belongs to an object which is not known to be ours. Either our own create made it and the
// reply was lost; then the next pass finds it by its labels. Or it belongs to others; then it is not touched.
func nameTaken(what, name string) error {
	return fmt.Errorf("the name %s is in use by a %s that is not of this sandbox: %w", name, what, errdefs.ErrUnavailable)
}

func (p *pass) createContainer(ctx context.Context, s plan.Step) error {
	if err := p.EngineRefuses(p.sb.Spec, p.sb.Desired.GetConfinement()).Err(); err != nil {
		return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	spec, err := p.containerSpec(s.Service, cmp.Or(s.ID, p.networkID))
	if err != nil {
		return err
	}
	if spec.Volumes, err = p.volumes(ctx, s.Service); err != nil {
		return err
	}
	p.made[s.Service], err = p.o.Engine.CreateContainer(ctx, spec)
	if errdefs.IsAlreadyExists(err) {
		return nameTaken("container", spec.Name)
	}
	return err
}

func (p *pass) start(ctx context.Context, s plan.Step) error {
	id := cmp.Or(s.ID, p.made[s.Service])
	if p.sb.Desired.GetAdopted() == nil {
		if _, err := p.o.Files.Prepare(p.rec.ID); err != nil { // a power failure may have taken a directory
			return err
		}
	}
	if err := p.o.Secrets.Deliver(p.rec.ID); err != nil {
		return err
	}
	if s.Service == "" {
		if s.ID != "" {
			// The answer that showed it stopped may be older than its last start, and Withhold would drop what PID 1 has reported since.
			if d, err := p.o.Engine.InspectContainer(ctx, id); err != nil || d.Running {
				return err
			}
		}
		if err := p.verifySources(); err != nil {
			return err
		}
		if p.sb.Desired.GetAdopted() == nil {
			if err := p.o.Files.Withhold(p.rec.ID); err != nil {
				return err
			}
		}
	}
	if err := p.holdTmp(ctx, id, s.Service); err != nil {
		return err
	}
	if err := p.o.Engine.StartContainer(ctx, id); err != nil || !publishesFrom(p.sb.Spec, s.Service) {
		return err
	}
	d, err := p.o.Engine.InspectContainer(ctx, id)
	if err != nil {
		return nil // it has started; the next pass observes its ports
	}
	p.scratch.addPorts(p.rec.ID, s.Service, PortsOf(plan.Container{Service: s.Service}, d))
	return nil
}

func (p *pass) stop(ctx context.Context, s plan.Step) error {
	return p.background(ctx, s, s.ID, 0, "stopping", p.audited(s, s.ID, func(ctx context.Context) error {
		return p.o.Engine.StopContainer(ctx, s.ID, p.set.StopGrace)
	}))
}
