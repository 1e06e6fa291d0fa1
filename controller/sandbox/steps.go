package sandbox

import (
	"cmp"
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/sandboxstate"
)

// run executes one step. Each step may be repeated, also after a crash.
func (p *pass) run(ctx context.Context, s plan.Step) error {
	id := p.rec.ID
	switch s.Kind {
	case plan.MakeInputs:
		_, err := p.o.Files.Prepare(id)
		return err
	case plan.EnsureImage:
		return p.ensureImage(ctx, s)
	case plan.CreateNetwork:
		return p.createNetwork(ctx)
	case plan.ConnectNetwork:
		return p.connect(ctx, s)
	case plan.CreatePrimary, plan.CreateService:
		return p.createContainer(ctx, s)
	case plan.CopyFiles:
		return p.copyFiles(ctx, s)
	case plan.StartContainer:
		return p.start(ctx, s)
	case plan.Release:
		return p.release(ctx, s)
	case plan.RunHook:
		return p.runHook(s.Index)
	case plan.CancelHook:
		return p.cancelHook(s.Index)
	case plan.EndHook:
		return p.o.Files.Forget(id, execid.ForHook(s.Index))
	case plan.CancelExecs:
		p.o.EnqueueExecs(id)
		p.o.EnqueueAgents(id)
		return nil
	case plan.UpdateLimits:
		return p.o.Engine.UpdateContainer(ctx, s.ID, dockerx.Limits(s.Limits))
	case plan.StopContainer:
		return p.stop(ctx, s)
	case plan.PauseContainer:
		return p.o.Engine.PauseContainer(ctx, s.ID)
	case plan.UnpauseContainer:
		return p.o.Engine.UnpauseContainer(ctx, s.ID)
	case plan.RemoveContainer:
		return p.removeContainer(ctx, s)
	case plan.RemoveNetwork:
		return p.o.Engine.RemoveNetwork(ctx, s.ID)
	case plan.RemoveInputs:
		return p.removeFiles(ctx, s, p.o.Files.RemoveInputs)
	case plan.RemoveFiles:
		return p.removeFiles(ctx, s, p.o.Files.Remove)
	}
	return p.ask(ctx, s)
}

// ask runs a step that changes the intent. The store decides at the commit whether the change is still due.
func (p *pass) ask(ctx context.Context, s plan.Step) error {
	id := p.rec.ID
	var err error
	switch s.Kind {
	case plan.StopIdle:
		_, err = p.o.Store.RequestIdleStop(ctx, id, p.set.IdleTTL, p.at)
	case plan.Cleanup:
		_, err = p.o.Store.RequestCleanup(ctx, id, p.set.CleanupTTL, p.at)
	case plan.Expire:
		_, err = p.o.Store.RequestExpire(ctx, id, p.at)
	case plan.Demote:
		_, err = p.o.Store.Demote(ctx, id)
	case plan.PauseCleanup:
		_, err = p.o.Store.RequestPauseCleanup(ctx, id, p.set.StoppedGCAfter, p.at)
	case plan.StopDead:
		if _, err = p.o.Store.RequestStop(ctx, id, s.Words); errdefs.IsFailedPrecondition(err) {
			err = nil // it was resumed meanwhile
		}
	default:
		err = fmt.Errorf("unknown step %s", s.Kind)
	}
	return err
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
	bits := 28
	for 1<<(32-bits)-3 < 1+services {
		bits--
	}
	return bits
}

// nameTaken returns the error for a name that belongs to an object which is not known to be ours. Either our own create made it and the
// reply was lost; then the next pass finds it by its labels. Or it belongs to others; then it is not touched.
func nameTaken(what, name string) error {
	return fmt.Errorf("the name %s is taken by a %s that is not of this sandbox: %w", name, what, errdefs.ErrUnavailable)
}

func (p *pass) createContainer(ctx context.Context, s plan.Step) error {
	if err := p.EngineRefuses(p.sb.Spec, p.sb.Desired.GetConfinement()).Err(); err != nil {
		return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	spec, err := p.containerSpec(s.Service, cmp.Or(s.ID, p.networkID))
	if err != nil {
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
	if s.Service == "" {
		if err := p.verifySources(); err != nil {
			return err
		}
		if err := p.o.Files.Withhold(p.rec.ID); err != nil {
			return err
		}
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
