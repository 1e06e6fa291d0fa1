package controller

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/clock"
	"github.com/agbox/agbox/controller/message"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
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
}

// inDoubt reports whether the decision depends on the absence of parts that w does not show.
func (c *Controller) inDoubt(v view, w plan.World) bool {
	return c.decide(*v.rec, v.sb, w, v.at).InDoubt
}

// observe reads what there is of one sandbox. run is the engine's life as it was before: what is seen alive has then
// outlived it.
func (c *Controller) observe(ctx context.Context, v view, run *storev1.EngineRun) (plan.World, error) {
	rec := v.rec
	w := plan.World{Run: run, Stopping: c.ops.Subjects(rec.ID, plan.StopContainer), Doubt: unproven}
	containers, err := c.cfg.listContainers(ctx, rec.ID)
	if err != nil {
		return w, err
	}
	networks, err := c.cfg.listNetworks(ctx, rec.ID)
	if err != nil {
		return w, err
	}
	w.Containers, w.Networks = containersOf(containers), networksOf(networks)
	if w.Inputs, err = c.cfg.Execs.Prepared(rec.ID); err != nil {
		return w, err
	}
	if rec.Standing != plan.Live {
		return w, nil
	}
	if w.Hook, err = c.observeHook(*rec, v.sb); err != nil {
		return w, err
	}
	goes := rec.Desired == storev1.RunState_RUN_STATE_DELETE && len(w.Containers) == 0
	if goes || c.inDoubt(v, w) {
		if err := c.lookFor(ctx, *rec, &w); err != nil {
			return w, err
		}
	}
	switch {
	case len(w.Containers) > 0:
		err = c.examineContainers(ctx, rec, v.sb.Spec, &w)
	case goes:
		err = c.sameEngine(ctx, run)
	default:
		err = c.examineAbsence(ctx)
	}
	if err != nil {
		return w, err
	}
	return w, c.judgeAbsence(ctx, v, &w)
}

// examineAbsence makes sure that an engine that shows nothing of a sandbox is ours: it may have been replaced since the
// link to it was judged. Then nothing is missing, nor clean.
func (c *Controller) examineAbsence(ctx context.Context) error {
	if err := c.link.checkMarker(ctx); err != nil {
		return fmt.Errorf("make sure of the engine: %w", err)
	}
	return nil
}

// sameEngine checks that the engine is ours, has the recorded storage driver and data root, and was not restarted since the observation.
func (c *Controller) sameEngine(ctx context.Context, run *storev1.EngineRun) error {
	if err := c.link.checkSame(ctx, run); err != nil {
		return fmt.Errorf("make sure of the engine: %w", err)
	}
	return nil
}

// examineContainers asks after each container itself: the engine tells of an end before its lists know of it, and this
// pass may be the only one that the end's event brings about.
func (c *Controller) examineContainers(ctx context.Context, rec *plan.Record, spec *agboxv1.CreateSpec, w *plan.World) error {
	ports := []*agboxv1.PublishedPort{}
	dead := false
	for i, ct := range w.Containers {
		if ct.Unclear() {
			continue
		}
		d, err := c.cfg.Engine.InspectContainer(ctx, ct.ID)
		if errdefs.IsNotFound(err) {
			return fmt.Errorf("container %s went while it was looked at: %w", ct.Name, errdefs.ErrUnavailable)
		}
		if err != nil {
			return err
		}
		w.Containers[i] = inspected(d, spec)
		w.Containers[i].KilledOutside = c.kills.has(d.ID)
		ports = append(ports, portsOf(w.Containers[i], d)...)
		dead = dead || w.Containers[i].Ended()
		if ct.Component == naming.ComponentPrimary && w.Containers[i].Ended() {
			if w.Terminated, err = c.cfg.Execs.Terminated(rec.ID); err != nil {
				return err
			}
		}
		if ct.Component == naming.ComponentPrimary && runs(*rec) && !w.Containers[i].Alive() && d.OOMKilled {
			if rec.ExecOOM, err = c.cfg.Store.ExecKilledForMemory(ctx, rec.ID, d.StartedAt); err != nil {
				return err
			}
		}
	}
	c.published.set(rec.ID, ports)
	if dead && (rec.Desired == storev1.RunState_RUN_STATE_RUN || rec.Desired == storev1.RunState_RUN_STATE_PAUSE) {
		return c.examineDeath(ctx, w)
	}
	return nil
}

// examineDeath finds out whether the engine that says that a container has ended is the one that saw it live. The engine's
// life is read after the end was seen: one that died in between has another life by then. What was seen alive may then have
// been so in either, so everything is looked at again, once the link knows of the new life.
func (c *Controller) examineDeath(ctx context.Context, w *plan.World) error {
	info, err := c.cfg.Engine.Info(ctx)
	if err != nil {
		return err
	}
	if run := c.cfg.run(info); !proto.Equal(run, w.Run) {
		return fmt.Errorf("the engine was restarted while it was looked at: %w", errdefs.ErrUnavailable)
	}
	for _, ct := range w.Containers {
		if err := c.confirmEnd(ctx, ct); err != nil {
			return err
		}
	}
	return nil
}

// confirmEnd inspects a container that has ended a second time: the first answer may have been of before its present run.
func (c *Controller) confirmEnd(ctx context.Context, ct plan.Container) error {
	if !ct.Ended() {
		return nil
	}
	d, err := c.cfg.Engine.InspectContainer(ctx, ct.ID)
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	if err != nil || containerOf(d.Container).Alive() || !d.StartedAt.Equal(ct.StartedAt) {
		return fmt.Errorf("two looks at container %s do not agree: %w", ct.Name, errdefs.ErrUnavailable)
	}
	return nil
}

func containersOf(list []dockerx.Container) []plan.Container {
	out := make([]plan.Container, 0, len(list))
	for _, ct := range list {
		out = append(out, containerOf(ct))
	}
	return out
}

func containerOf(ct dockerx.Container) plan.Container {
	return plan.Container{
		ID: ct.ID, Name: ct.Name, Component: ct.Labels[naming.Component], Service: ct.Labels[naming.ServiceName],
		Status: string(ct.State), Health: string(ct.Health), EndedWell: ct.EndedWell,
		NetworkIDs: ct.Networks,
	}
}

func inspected(d dockerx.ContainerDetail, spec *agboxv1.CreateSpec) plan.Container {
	c := containerOf(d.Container)
	c.Inspected, c.Limits, c.Probes = true, plan.Limits(d.Limits), slices.Contains(d.Entrypoint, probeFlag)
	c.HealthOutput = message.Redact(message.Printable([]byte(d.HealthOutput)), serviceSpec(spec, c.Service).GetEnvs())
	c.ExitCode, c.OOMKilled, c.StartedAt, c.FinishedAt = d.ExitCode, d.OOMKilled, d.StartedAt, d.FinishedAt
	return c
}

func networksOf(list []dockerx.Network) []plan.Network {
	out := make([]plan.Network, 0, len(list))
	for _, n := range list {
		out = append(out, plan.Network{ID: n.ID, Created: n.Created})
	}
	return out
}
