package sandbox

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/store"
)

// claim records, once, which objects belong to a sandbox that an older daemon created: those objects name no instance, and only recorded
// ones are ever touched. Without a primary nothing is claimed, and each pass lists them again. It returns the record as it is then.
func (r *Reconciler) claim(ctx context.Context, rec plan.Record, sb store.Sandbox, run *storev1.EngineRun) (plan.Record, store.Sandbox, error) {
	if rec.Standing != plan.Live || sb.Desired.GetAdopted() == nil || sb.Desired.GetObjects() != nil {
		return rec, sb, nil
	}
	containers, networks, err := r.o.Objects.Unlabelled(ctx, rec.ID)
	if err != nil {
		return rec, sb, fmt.Errorf("list the objects of the older daemon: %w", err)
	}
	primary := partOf(containers, naming.ComponentPrimary, "", naming.Primary(rec.ID))
	if primary == nil {
		return rec, sb, nil
	}
	d, err := r.o.Engine.InspectContainer(ctx, primary.ID)
	if errdefs.IsNotFound(err) {
		return rec, sb, nil // the next pass sees that
	}
	if err != nil {
		return rec, sb, err
	}
	if why := foreignTo(d, r.o.Files.Paths(rec.ID).Logs, sb.Desired.GetAdopted().GetWasReady()); why != "" {
		r.log.Warn("a container of an older daemon is left alone", "sandbox_id", rec.ID, "container_id", d.ID, "reason", why)
		return rec, sb, nil
	}
	claimed := objectsOf(rec, d.Container, containers, networks)
	// A primary that has ended counts as ended in this life: it is judged by its exit code, and not started because of an earlier death.
	err = r.report(ctx, rec.ID, sb.Desired.GetGeneration(), plan.Report{Objects: claimed, EngineRun: run}, Timeout(sb, r.o.Settings()))
	if err != nil {
		return rec, sb, ignoreAborted(err) // a newer intent has enqueued the key
	}
	r.log.Info("the containers of an older daemon are adopted", "sandbox_id", rec.ID, "container_id", d.ID)
	return r.reader.Record(ctx, rec.ID)
}

// foreignTo says why a primary is not of the sandbox of this daemon whose logs are in that directory; empty: it is. Two daemons on one engine
// may have sandboxes of one ID, but only one of them has the containers. The mount of the logs shows whose they are. Without that mount, a
// sandbox that was never READY may never have had a container.
func foreignTo(d dockerx.ContainerDetail, logs string, wasReady bool) string {
	for _, m := range d.Mounts {
		if m.Target == execjournal.ContainerLogs {
			if m.Source != logs {
				return fmt.Sprintf("its logs are in %s and not in %s: it belongs to another daemon, or artifacts.exec_output_root was another directory", m.Source, logs)
			}
			return ""
		}
	}
	if !wasReady {
		return "it mounts no logs, and the sandbox was never ready: it may belong to another daemon"
	}
	return ""
}

// objectsOf returns the IDs of the objects of a sandbox whose primary is known.
func objectsOf(rec plan.Record, primary dockerx.Container, containers []dockerx.Container, networks []dockerx.Network) *storev1.Objects {
	o := &storev1.Objects{PrimaryId: primary.ID, ServiceIds: map[string]string{}}
	for _, s := range rec.Wanted.Services {
		if c := partOf(containers, naming.ComponentService, s.Name, naming.Service(rec.ID, s.Name)); c != nil {
			o.ServiceIds[s.Name] = c.ID
		}
	}
	for _, n := range networks {
		if o.NetworkId == "" || n.Name == naming.Network(rec.ID) {
			o.NetworkId = n.ID
		}
	}
	return o
}

// partOf returns the container with these labels: the one with that name, or the only one. nil: there is none, or it is unclear which.
func partOf(containers []dockerx.Container, component, service, name string) *dockerx.Container {
	var found []*dockerx.Container
	for i, c := range containers {
		if c.Labels[naming.Component] != component || c.Labels[naming.ServiceName] != service {
			continue
		}
		if c.Name == name {
			return &containers[i]
		}
		found = append(found, &containers[i])
	}
	if len(found) != 1 {
		return nil
	}
	return found[0]
}
