package sandbox

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/absence"
	"github.com/agbox/agbox/controller/clock"
	"github.com/agbox/agbox/controller/message"
	"github.com/agbox/agbox/controller/owned"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/store"
)

// unproven is the doubt about a part that was looked for in the lists only.
const unproven = "looking by ID and by name for what the engine's lists do not show"

// View is the record of one sandbox, and the reading of the clock by which a pass decides.
type View struct {
	Record  *plan.Record
	Sandbox store.Sandbox
	At      clock.Look
}

// Sight is what an observation saw of one sandbox.
type Sight struct {
	World plan.World
	// Ports are the published ports; nil: nobody looked at them.
	Ports []*agboxv1.PublishedPort
	// Hook is since when the running hook is waited for; nil: none runs.
	Hook *HookWait
	// NoHook: the sandbox is not in a create that waits for a hook.
	NoHook bool
}

// inDoubt reports whether the decision depends on the absence of parts that w does not show.
func (r *Reader) inDoubt(v View, w plan.World) bool {
	return r.Decide(*v.Record, v.Sandbox, w, v.At).InDoubt
}

// Observe reads what there is of one sandbox. run is the engine's life before the observation: what is seen alive was alive in it. What
// it returns with an error is what it saw until then.
func (r *Reader) Observe(ctx context.Context, v View, run *storev1.EngineRun) (Sight, error) {
	rec := v.Record
	saw := Sight{World: plan.World{Run: run, Stopping: r.o.Stopping(rec.ID), Doubt: unproven}}
	w := &saw.World
	containers, err := r.o.Objects.Containers(ctx, rec.ID)
	if err != nil {
		return saw, err
	}
	networks, err := r.o.Objects.Networks(ctx, rec.ID)
	if err != nil {
		return saw, err
	}
	w.Containers, w.Networks = containersOf(containers), networksOf(networks)
	if w.Inputs, err = r.o.Files.Prepared(rec.ID); err != nil {
		return saw, err
	}
	if rec.Standing != plan.Live {
		return saw, nil
	}
	if err := r.observeHook(v, &saw); err != nil {
		return saw, err
	}
	goes := rec.Desired == storev1.RunState_RUN_STATE_DELETE && len(w.Containers) == 0
	if goes || r.inDoubt(v, *w) {
		if err := r.o.Absences.Find(ctx, *rec, w); err != nil {
			return saw, err
		}
	}
	switch {
	case len(w.Containers) > 0:
		err = r.examineContainers(ctx, rec, v.Sandbox.Spec, &saw)
	case goes:
		err = r.sameEngine(ctx, run)
	default:
		err = r.examineAbsence(ctx)
	}
	if err != nil {
		return saw, err
	}
	return saw, r.o.Absences.Judge(ctx, absence.Sandbox{
		Record: *rec, Name: absence.NameOf(v.Sandbox), InDoubt: func(w plan.World) bool { return r.inDoubt(v, w) },
	}, w)
}

// examineAbsence makes sure that an engine that shows nothing of a sandbox is ours: it may have been replaced since the
// link to it was judged. Then nothing is missing, nor clean.
func (r *Reader) examineAbsence(ctx context.Context) error {
	if err := r.o.Link.CheckMarker(ctx); err != nil {
		return fmt.Errorf("make sure of the engine: %w", err)
	}
	return nil
}

// sameEngine checks that the engine is ours, has the recorded storage driver and data root, and was not restarted since the observation.
func (r *Reader) sameEngine(ctx context.Context, run *storev1.EngineRun) error {
	if err := r.o.Link.CheckSame(ctx, run); err != nil {
		return fmt.Errorf("make sure of the engine: %w", err)
	}
	return nil
}

// examineContainers asks after each container itself: the engine tells of an end before its lists know of it, and this
// pass may be the only one that the end's event brings about.
func (r *Reader) examineContainers(ctx context.Context, rec *plan.Record, spec *agboxv1.CreateSpec, saw *Sight) error {
	w := &saw.World
	ports := []*agboxv1.PublishedPort{}
	dead := false
	for i, ct := range w.Containers {
		if ct.Unclear() {
			continue
		}
		d, err := r.o.Engine.InspectContainer(ctx, ct.ID)
		if errdefs.IsNotFound(err) {
			return fmt.Errorf("container %s went while it was looked at: %w", ct.Name, errdefs.ErrUnavailable)
		}
		if err != nil {
			return err
		}
		w.Containers[i] = inspected(d, spec)
		w.Containers[i].KilledOutside = r.o.Killed(d.ID)
		ports = append(ports, PortsOf(w.Containers[i], d)...)
		dead = dead || w.Containers[i].Ended()
		if ct.Component == naming.ComponentPrimary && w.Containers[i].Ended() {
			if w.Terminated, err = r.o.Files.Terminated(rec.ID); err != nil {
				return err
			}
		}
		if ct.Component == naming.ComponentPrimary && rec.Runs() && !w.Containers[i].Alive() && d.OOMKilled {
			if rec.ExecOOM, err = r.o.Store.ExecKilledForMemory(ctx, rec.ID, d.StartedAt); err != nil {
				return err
			}
		}
	}
	saw.Ports = ports
	if dead && (rec.Desired == storev1.RunState_RUN_STATE_RUN || rec.Desired == storev1.RunState_RUN_STATE_PAUSE) {
		return r.examineDeath(ctx, w)
	}
	return nil
}

// examineDeath finds out whether the engine that says that a container has ended is the one that saw it live. The engine's
// life is read after the end was seen: one that died in between has another life by then. What was seen alive may then have
// been so in either, so everything is looked at again, once the link knows of the new life.
func (r *Reader) examineDeath(ctx context.Context, w *plan.World) error {
	info, err := r.o.Engine.Info(ctx)
	if err != nil {
		return err
	}
	if run := r.o.Link.RunOf(info); !proto.Equal(run, w.Run) {
		return fmt.Errorf("the engine was restarted while it was looked at: %w", errdefs.ErrUnavailable)
	}
	for _, ct := range w.Containers {
		if err := r.confirmEnd(ctx, ct); err != nil {
			return err
		}
	}
	return nil
}

// confirmEnd inspects a container that has ended a second time: the first answer may have been of before its present run.
func (r *Reader) confirmEnd(ctx context.Context, ct plan.Container) error {
	if !ct.Ended() {
		return nil
	}
	d, err := r.o.Engine.InspectContainer(ctx, ct.ID)
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	if err != nil || owned.Container(d.Container).Alive() || !d.StartedAt.Equal(ct.StartedAt) {
		return fmt.Errorf("two looks at container %s do not agree: %w", ct.Name, errdefs.ErrUnavailable)
	}
	return nil
}

func containersOf(list []dockerx.Container) []plan.Container {
	out := make([]plan.Container, 0, len(list))
	for _, ct := range list {
		out = append(out, owned.Container(ct))
	}
	return out
}

func inspected(d dockerx.ContainerDetail, spec *agboxv1.CreateSpec) plan.Container {
	c := owned.Container(d.Container)
	c.Inspected, c.Limits, c.Probes = true, plan.Limits(d.Limits), slices.Contains(d.Entrypoint, ProbeFlag)
	c.HealthOutput = message.Redact(message.Printable([]byte(d.HealthOutput)), ServiceSpec(spec, c.Service).GetEnvs())
	c.ExitCode, c.OOMKilled, c.StartedAt, c.FinishedAt = d.ExitCode, d.OOMKilled, d.StartedAt, d.FinishedAt
	return c
}

func networksOf(list []dockerx.Network) []plan.Network {
	out := make([]plan.Network, 0, len(list))
	for _, n := range list {
		out = append(out, owned.Network(n))
	}
	return out
}

// PortsOf are the published ports of a container.
func PortsOf(ct plan.Container, d dockerx.ContainerDetail) []*agboxv1.PublishedPort {
	var out []*agboxv1.PublishedPort
	for _, p := range d.Ports {
		out = append(out, &agboxv1.PublishedPort{
			ServiceName: ct.Service, ContainerPort: uint32(p.ContainerPort), HostPort: uint32(p.HostPort), Protocol: p.Protocol,
		})
	}
	return out
}
