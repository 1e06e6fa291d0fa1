package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

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
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/store"
)

// unproven is the doubt about a part that was looked for in the lists only.
const unproven = "looking by ID and by name for what the engine's lists do not show"

// view is the record of one sandbox, and the reading of the clock by which a pass decides.
type view struct {
	rec *plan.Record
	sb  store.Sandbox
	at  clock.Look
	// hook is when the wait for a hook of the sandbox began, as far as that is known.
	hook hookBegin
}

// sight is what an observer saw of one sandbox.
type sight struct {
	world plan.World
	// ports are the published ports; nil: nobody looked at them.
	ports []*agboxv1.PublishedPort
	// hook is the running hook; nil: none runs.
	hook *hookBegin
	// noHook: the sandbox is not in a create that waits for a hook.
	noHook bool
}

// observer reads what there is of one sandbox. None of its ports can change anything.
type observer struct {
	store interface {
		InstanceID() string
		ExecKilledForMemory(ctx context.Context, sandboxID string, since time.Time) (bool, error)
	}
	engine interface {
		Info(ctx context.Context) (dockerx.Info, error)
		InspectContainer(ctx context.Context, id string) (dockerx.ContainerDetail, error)
	}
	objects owned.Objects
	files   interface {
		Prepared(sandboxID string) (bool, error)
		Terminated(sandboxID string) (bool, error)
		Look(sandboxID, execID, nonce string) (execjournal.Status, error)
		Tail(sandboxID, execID string, stderr bool, limit int) ([]byte, error)
	}
	link interface {
		CheckMarker(ctx context.Context) error
		CheckSame(ctx context.Context, run *storev1.EngineRun) error
		RunOf(info dockerx.Info) *storev1.EngineRun
	}
	absences interface {
		Find(ctx context.Context, rec plan.Record, w *plan.World) error
		Judge(ctx context.Context, s absence.Sandbox, w *plan.World) error
	}
	// stopping are the containers of a sandbox that are being stopped.
	stopping func(sandboxID string) []string
	// killed reports whether a container was killed through the engine.
	killed func(containerID string) bool
	// now is the clock of the wait for a hook.
	now    func() time.Time
	decide func(rec plan.Record, sb store.Sandbox, w plan.World, l clock.Look) plan.Plan
}

// inDoubt reports whether the decision depends on the absence of parts that w does not show.
func (o *observer) inDoubt(v view, w plan.World) bool {
	return o.decide(*v.rec, v.sb, w, v.at).InDoubt
}

// observe reads what there is of one sandbox. run is the engine's life as it was before: what is seen alive has then
// outlived it.
func (o *observer) observe(ctx context.Context, v view, run *storev1.EngineRun) (sight, error) {
	rec := v.rec
	saw := sight{world: plan.World{Run: run, Stopping: o.stopping(rec.ID), Doubt: unproven}}
	w := &saw.world
	containers, err := o.objects.Containers(ctx, rec.ID)
	if err != nil {
		return saw, err
	}
	networks, err := o.objects.Networks(ctx, rec.ID)
	if err != nil {
		return saw, err
	}
	w.Containers, w.Networks = containersOf(containers), networksOf(networks)
	if w.Inputs, err = o.files.Prepared(rec.ID); err != nil {
		return saw, err
	}
	if rec.Standing != plan.Live {
		return saw, nil
	}
	if err := o.observeHook(v, &saw); err != nil {
		return saw, err
	}
	goes := rec.Desired == storev1.RunState_RUN_STATE_DELETE && len(w.Containers) == 0
	if goes || o.inDoubt(v, *w) {
		if err := o.absences.Find(ctx, *rec, w); err != nil {
			return saw, err
		}
	}
	switch {
	case len(w.Containers) > 0:
		err = o.examineContainers(ctx, rec, v.sb.Spec, &saw)
	case goes:
		err = o.sameEngine(ctx, run)
	default:
		err = o.examineAbsence(ctx)
	}
	if err != nil {
		return saw, err
	}
	return saw, o.absences.Judge(ctx, absence.Sandbox{
		Record: *rec, Name: absence.NameOf(v.sb), InDoubt: func(w plan.World) bool { return o.inDoubt(v, w) },
	}, w)
}

// examineAbsence makes sure that an engine that shows nothing of a sandbox is ours: it may have been replaced since the
// link to it was judged. Then nothing is missing, nor clean.
func (o *observer) examineAbsence(ctx context.Context) error {
	if err := o.link.CheckMarker(ctx); err != nil {
		return fmt.Errorf("make sure of the engine: %w", err)
	}
	return nil
}

// sameEngine checks that the engine is ours, has the recorded storage driver and data root, and was not restarted since the observation.
func (o *observer) sameEngine(ctx context.Context, run *storev1.EngineRun) error {
	if err := o.link.CheckSame(ctx, run); err != nil {
		return fmt.Errorf("make sure of the engine: %w", err)
	}
	return nil
}

// examineContainers asks after each container itself: the engine tells of an end before its lists know of it, and this
// pass may be the only one that the end's event brings about.
func (o *observer) examineContainers(ctx context.Context, rec *plan.Record, spec *agboxv1.CreateSpec, saw *sight) error {
	w := &saw.world
	ports := []*agboxv1.PublishedPort{}
	dead := false
	for i, ct := range w.Containers {
		if ct.Unclear() {
			continue
		}
		d, err := o.engine.InspectContainer(ctx, ct.ID)
		if errdefs.IsNotFound(err) {
			return fmt.Errorf("container %s went while it was looked at: %w", ct.Name, errdefs.ErrUnavailable)
		}
		if err != nil {
			return err
		}
		w.Containers[i] = inspected(d, spec)
		w.Containers[i].KilledOutside = o.killed(d.ID)
		ports = append(ports, portsOf(w.Containers[i], d)...)
		dead = dead || w.Containers[i].Ended()
		if ct.Component == naming.ComponentPrimary && w.Containers[i].Ended() {
			if w.Terminated, err = o.files.Terminated(rec.ID); err != nil {
				return err
			}
		}
		if ct.Component == naming.ComponentPrimary && runs(*rec) && !w.Containers[i].Alive() && d.OOMKilled {
			if rec.ExecOOM, err = o.store.ExecKilledForMemory(ctx, rec.ID, d.StartedAt); err != nil {
				return err
			}
		}
	}
	saw.ports = ports
	if dead && (rec.Desired == storev1.RunState_RUN_STATE_RUN || rec.Desired == storev1.RunState_RUN_STATE_PAUSE) {
		return o.examineDeath(ctx, w)
	}
	return nil
}

// examineDeath finds out whether the engine that says that a container has ended is the one that saw it live. The engine's
// life is read after the end was seen: one that died in between has another life by then. What was seen alive may then have
// been so in either, so everything is looked at again, once the link knows of the new life.
func (o *observer) examineDeath(ctx context.Context, w *plan.World) error {
	info, err := o.engine.Info(ctx)
	if err != nil {
		return err
	}
	if run := o.link.RunOf(info); !proto.Equal(run, w.Run) {
		return fmt.Errorf("the engine was restarted while it was looked at: %w", errdefs.ErrUnavailable)
	}
	for _, ct := range w.Containers {
		if err := o.confirmEnd(ctx, ct); err != nil {
			return err
		}
	}
	return nil
}

// confirmEnd inspects a container that has ended a second time: the first answer may have been of before its present run.
func (o *observer) confirmEnd(ctx context.Context, ct plan.Container) error {
	if !ct.Ended() {
		return nil
	}
	d, err := o.engine.InspectContainer(ctx, ct.ID)
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
	c.Inspected, c.Limits, c.Probes = true, plan.Limits(d.Limits), slices.Contains(d.Entrypoint, probeFlag)
	c.HealthOutput = message.Redact(message.Printable([]byte(d.HealthOutput)), serviceSpec(spec, c.Service).GetEnvs())
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
