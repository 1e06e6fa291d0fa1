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

// unproven is the World.Doubt about a part of which only the engine's lists were read.
const unproven = "looking by ID and by name for what the engine's lists do not show"

// View is the record of one sandbox, and the clock reading that a pass decides by.
type View struct {
	Record  plan.Record
	Sandbox store.Sandbox
	At      clock.Reading
}

// inDoubt reports whether the decision depends on the absence of parts that w does not contain.
func (r *Reader) inDoubt(v View, w plan.World) bool {
	return r.Decide(v.Record, v.Sandbox, w, v.At).InDoubt
}

// Observe reads the engine's objects and the files of one sandbox. run is the engine's life before the observation: a container observed as
// running was running in that life. ports are the published ports; nil: they were not inspected. With an error, Observe returns what it has
// read so far.
func (r *Reader) Observe(ctx context.Context, v View, run *storev1.EngineRun) (w plan.World, ports []*agboxv1.PublishedPort, err error) {
	rec := v.Record
	w = plan.World{Run: run, Stopping: r.o.Stopping(rec.ID), Committing: r.o.Committing(rec.ID), Doubt: unproven}
	listed, err := r.o.Objects.Worlds(ctx, rec.ID)
	if err != nil {
		return w, nil, err
	}
	if l := listed[rec.ID]; l != nil {
		w.Containers, w.Networks = l.Containers, l.Networks
	}
	if err = r.observeFiles(rec.ID, &w); err != nil || rec.Standing != plan.Live {
		return w, nil, err
	}
	if err := r.observeHook(v, &w); err != nil {
		return w, nil, err
	}
	deleted := rec.Desired == storev1.RunState_RUN_STATE_DELETE // what this pass does not see is DELETED at its end
	if deleted || r.inDoubt(v, w) {
		if err := r.o.Absences.Find(ctx, rec, &w); err != nil {
			return w, nil, err
		}
	}
	r.observeRules(rec, v.Sandbox, &w)
	if len(w.Containers) > 0 {
		ports, err = r.examineContainers(ctx, v, &w)
	} else if err = r.checkEngine(ctx, run, deleted); err != nil {
		err = fmt.Errorf("make sure of the engine: %w", err)
	}
	if err != nil {
		return w, ports, err
	}
	return w, ports, r.o.Absences.Judge(ctx, absence.Sandbox{
		Record: rec, Name: absence.NameOf(v.Sandbox), InDoubt: func(w plan.World) bool { return r.inDoubt(v, w) },
	}, &w)
}

// observeStart reads what the PID 1 that is the process pid of the host reports about its start.
func (r *Reader) observeStart(v View, pid int) (plan.Start, error) {
	s, err := r.o.Files.Started(v.Record.ID)
	start := plan.Start{Reported: s.Reported, Error: s.Error, Main: s.Main}
	if v.Record.Progress.GetReleased() && !s.Reported && pid > 0 {
		start.Pid, start.Since = pid, r.o.Start(v.Record.ID).since(pid)
		if start.Since.IsZero() {
			start.Since = v.At.Now
		}
	}
	return start, err
}

// checkEngine checks, when the engine shows no container of a sandbox, that the engine is ours: it may have been replaced since the link was
// last checked. On another engine nothing may be judged missing or removed. If the sandbox is to be deleted, the engine must also have the
// recorded storage driver and data root, and not have restarted since run.
func (r *Reader) checkEngine(ctx context.Context, run *storev1.EngineRun, deleted bool) error {
	if deleted {
		return r.o.Link.CheckSame(ctx, run)
	}
	return r.o.Link.CheckMarker(ctx)
}

// examineContainers inspects each container: the engine sends the event of an end before its lists show the end, and this pass may be the
// only one that the event enqueues.
func (r *Reader) examineContainers(ctx context.Context, v View, w *plan.World) (ports []*agboxv1.PublishedPort, err error) {
	ports = []*agboxv1.PublishedPort{}
	rec, dead := v.Record, false
	for i, ct := range w.Containers {
		if ct.Unclear() {
			continue
		}
		d, err := r.o.Engine.InspectContainer(ctx, ct.ID)
		if errdefs.IsNotFound(err) {
			return nil, fmt.Errorf("container %s was removed during the observation: %w", ct.Name, errdefs.ErrUnavailable)
		}
		if err != nil {
			return nil, err
		}
		w.Containers[i] = r.inspected(rec.ID, d, v.Sandbox.Spec)
		w.Containers[i].KilledOutside = r.o.Killed(d.ID)
		ports = append(ports, PortsOf(w.Containers[i], d)...)
		dead = dead || w.Containers[i].Ended()
		if w.Containers[i].Output, err = r.lastOutput(ctx, v, w.Containers[i]); err != nil {
			return nil, err
		}
		if w.Containers[i].Reports {
			if w.Start, err = r.observeStart(v, d.Pid); err != nil {
				return nil, err
			}
		}
		if ct.Component == naming.ComponentPrimary && w.Containers[i].Ended() {
			at, err := r.o.Files.Terminated(rec.ID)
			if err != nil {
				return nil, err
			}
			w.Terminated = !at.IsZero()
		}
		if ct.Component == naming.ComponentPrimary && rec.Runs() && !w.Containers[i].Alive() && d.OOMKilled {
			if w.ExecOOM, err = r.o.Store.ExecKilledForMemory(ctx, rec.ID, d.StartedAt); err != nil {
				return nil, err
			}
		}
	}
	if dead && (rec.Desired == storev1.RunState_RUN_STATE_RUN || rec.Desired == storev1.RunState_RUN_STATE_PAUSE) {
		err = r.examineDeath(ctx, w)
	}
	return ports, err
}

// examineDeath checks whether the engine that reports the end of a container is in the same life in which the container was observed
// running. It reads the engine's life after the end: an engine that died in between has another life by then. A container observed running
// may then have run in either life, so the pass is retried once the link has recorded the new life.
func (r *Reader) examineDeath(ctx context.Context, w *plan.World) error {
	info, err := r.o.Engine.Info(ctx)
	if err != nil {
		return err
	}
	if run := r.o.Link.RunOf(info); !proto.Equal(run, w.Run) {
		return fmt.Errorf("the engine restarted during the observation: %w", errdefs.ErrUnavailable)
	}
	for _, ct := range w.Containers {
		if !ct.Ended() {
			continue
		}
		d, err := r.o.Engine.InspectContainer(ctx, ct.ID) // a second time: the first answer may predate its present run
		if err != nil && !errdefs.IsNotFound(err) {
			return err
		}
		if err != nil || owned.Container(d.Container).Alive() || !d.StartedAt.Equal(ct.StartedAt) {
			return fmt.Errorf("two inspections of container %s disagree: %w", ct.Name, errdefs.ErrUnavailable)
		}
	}
	return nil
}

func (r *Reader) inspected(sandboxID string, d dockerx.ContainerDetail, spec *agboxv1.CreateSpec) plan.Container {
	c := owned.Container(d.Container)
	c.Inspected, c.Limits = true, plan.Limits(d.Limits)
	flags := flagsOf(d.Entrypoint)
	c.Probes, c.Reports = slices.Contains(flags, ProbeFlag), slices.Contains(flags, ReportFlag)
	if d.HealthOutput != "" {
		c.HealthOutput = message.Redact(message.Printable([]byte(d.HealthOutput)), ServiceSpec(spec, c.Service).GetEnvs(), r.o.Files.SecretValues(sandboxID, c.Service))
	}
	c.ExitCode, c.OOMKilled, c.StartedAt, c.FinishedAt = d.ExitCode, d.OOMKilled, d.StartedAt, d.FinishedAt
	return c
}

// flagsOf returns the command line of PID 1 without the main process, which may have arguments of the same names.
func flagsOf(entrypoint []string) []string {
	if i := slices.Index(entrypoint, "--"); i >= 0 {
		return entrypoint[:i]
	}
	return entrypoint
}

// PortsOf returns the published ports of a container.
func PortsOf(ct plan.Container, d dockerx.ContainerDetail) []*agboxv1.PublishedPort {
	var out []*agboxv1.PublishedPort
	for _, p := range d.Ports {
		out = append(out, &agboxv1.PublishedPort{
			ServiceName: ct.Service, ContainerPort: uint32(p.ContainerPort), HostPort: uint32(p.HostPort), Protocol: p.Protocol,
		})
	}
	return out
}
