package recovery

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/naming"
)

// Engine is the part of the engine that Gather needs.
type Engine interface {
	ListContainers(ctx context.Context, labels map[string]string) ([]dockerx.Container, error)
	ListNetworks(ctx context.Context, labels map[string]string) ([]dockerx.Network, error)
	InspectContainer(ctx context.Context, id string) (dockerx.ContainerDetail, error)
	InspectImage(ctx context.Context, ref string) (dockerx.Image, error)
}

// Files are the files of all sandboxes: *execjournal.Dir.
type Files interface {
	Paths(sandboxID string) execjournal.Paths
	Prepared(sandboxID string) (bool, error)
	Released(sandboxID string) (bool, error)
	Traces(sandboxID string) (list []execjournal.Trace, unread int, err error)
}

// Gatherer reads the input of Plan.
type Gatherer struct {
	Engine Engine
	Files  Files
	Log    *slog.Logger
	// Instance is the UUID of this store, and Former are previous ones of this daemon.
	Instance string
	Former   []string
	// Reserved reports whether the store has ever had a sandbox of that ID; nil: none.
	Reserved func(sandboxID string) bool
	Settings Settings
}

// GatherKnown adds to the log's records the traces of their execs. It makes no engine call.
func (g Gatherer) GatherKnown(known []Known) Input {
	in := Input{Instance: g.Instance, Former: slices.Clone(g.Former), Settings: g.Settings}
	for _, k := range known {
		id := k.Record.GetSandboxId()
		if g.reserved(id) {
			continue
		}
		var unread int
		k.Traces, unread = g.traces(id)
		in.noteUnread(id, unread)
		in.Known = append(in.Known, k)
	}
	return in
}

// Gather does the same and queries the engine for the rest: one list of containers and one of networks, of any instance, and
// then, 16 at a time, inspections of sandboxes whose state neither the store nor a complete log proves. A container whose
// inspection fails, while the engine answers otherwise, is skipped. Of recorded sandboxes, only primaries with an unknown
// instance are inspected. Errors: those of the lists.
func (g Gatherer) Gather(ctx context.Context, known []Known) (Input, error) {
	in := g.GatherKnown(known)
	containers, err := g.Engine.ListContainers(ctx, map[string]string{naming.SandboxID: ""})
	if err != nil {
		return Input{}, err
	}
	networks, err := g.Engine.ListNetworks(ctx, map[string]string{naming.SandboxID: ""})
	if err != nil {
		return Input{}, err
	}
	if err := g.findFormer(ctx, &in, containers, known); err != nil {
		return Input{}, err
	}
	w := g.unknown(&in, known, containers, networks)
	if err := g.inspect(ctx, &in, w, isPrimary); err != nil {
		return Input{}, err
	}
	if err := g.inspect(ctx, &in, w, w.services(&in, known)); err != nil {
		return Input{}, err
	}
	for _, id := range slices.Sorted(maps.Keys(w)) {
		in.Found = append(in.Found, w[id].Found)
	}
	in.Images = g.images(ctx, in.Found)
	return in, nil
}

func (g Gatherer) reserved(id string) bool { return g.Reserved != nil && g.Reserved(id) }

// recorded returns a predicate for the sandboxes whose record the store or a complete log has.
func (g Gatherer) recorded(known []Known) func(id string) bool {
	files := map[string]bool{}
	for _, k := range known {
		files[k.Record.GetSandboxId()] = !k.NeedsEngine()
	}
	return func(id string) bool { return files[id] || g.reserved(id) }
}

// sight collects the data of one sandbox for its Found.
type sight struct {
	Found
	listed []dockerx.Container
}

type sights map[string]*sight

// unknown groups the listed objects by sandbox, without recorded sandboxes.
func (g Gatherer) unknown(in *Input, known []Known, containers []dockerx.Container, networks []dockerx.Network) sights {
	w := sights{}
	recorded := g.recorded(known)
	of := func(id string) *sight {
		if recorded(id) {
			return nil
		}
		if w[id] == nil {
			w[id] = &sight{Found: Found{ID: id, Ctl: g.Files.Paths(id).Ctl}}
		}
		return w[id]
	}
	for _, k := range known {
		of(k.Record.GetSandboxId()) // also one without engine objects
	}
	for _, c := range containers {
		id := c.Labels[naming.SandboxID]
		if validate.SandboxID(id) != nil {
			in.Skipped = append(in.Skipped, skippedContainer(c, badID))
		} else if s := of(id); s != nil {
			s.listed = append(s.listed, c)
		}
	}
	for _, n := range networks {
		id := n.Labels[naming.SandboxID]
		if validate.SandboxID(id) != nil {
			in.Skipped = append(in.Skipped, Skipped{Kind: "network", ID: n.ID, Name: n.Name, SandboxID: id, Reason: badID})
		} else if s := of(id); s != nil {
			s.Networks = append(s.Networks, n)
		}
	}
	for id, s := range w {
		g.readFiles(in, id, &s.Found)
	}
	return w
}

// readFiles reads the files of a sandbox. Unreadable files count as missing, and are logged.
func (g Gatherer) readFiles(in *Input, id string, f *Found) {
	var err error
	if f.RunDir, err = g.Files.Prepared(id); err != nil {
		g.Log.Warn("cannot read the run directory of a sandbox", "sandbox_id", id, "err", err)
	}
	if f.Released, err = g.Files.Released(id); err != nil {
		g.Log.Warn("cannot read the run directory of a sandbox", "sandbox_id", id, "err", err)
	}
	f.Traces, f.Unread = g.traces(id)
	in.noteUnread(id, f.Unread)
}

func (g Gatherer) traces(id string) ([]execjournal.Trace, int) {
	list, unread, err := g.Files.Traces(id)
	if err != nil {
		g.Log.Warn("cannot read the files of a sandbox's execs", "sandbox_id", id, "err", err)
		return nil, 1
	}
	return list, unread
}

func (in *Input) noteUnread(id string, n int) {
	if n > 0 {
		in.Skipped = append(in.Skipped, Skipped{
			Kind: "exec", SandboxID: id, Reason: fmt.Sprintf("%d files of its execs can't be read", n), Unreadable: true,
		})
	}
}

// services selects the services of this daemon's sandboxes, whose primaries are inspected. All other containers stay as listed, to be
// reported as skipped.
func (w sights) services(in *Input, known []Known) (selected func(dockerx.Container) bool) {
	found := make([]Found, 0, len(w))
	for _, s := range w {
		found = append(found, s.Found)
	}
	instances := in.instances(known, found)
	ours := map[string]bool{}
	for _, s := range w {
		for _, c := range s.listed {
			if !isPrimary(c) {
				s.Containers = append(s.Containers, dockerx.ContainerDetail{Container: c})
			}
		}
		p, _ := s.claim(instances)
		for _, c := range p.services {
			ours[c.ID] = true
		}
		s.Containers = slices.DeleteFunc(s.Containers, func(c dockerx.ContainerDetail) bool { return ours[c.ID] })
	}
	return func(c dockerx.Container) bool { return ours[c.ID] }
}

// findFormer adds the former instances that only containers name. The record of a sandbox names the store that last wrote it,
// which may be one that a rebuild has created.
func (g Gatherer) findFormer(ctx context.Context, in *Input, containers []dockerx.Container, known []Known) error {
	recorded, instances := g.recorded(known), in.instances(known, nil)
	strangers := slices.DeleteFunc(slices.Clone(containers), func(c dockerx.Container) bool {
		return !isPrimary(c) || instances[c.Labels[naming.Instance]] || !recorded(c.Labels[naming.SandboxID])
	})
	details, _, failed := g.inspectAll(ctx, strangers)
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, d := range details {
		if owns(g.Files.Paths(d.Labels[naming.SandboxID]).Ctl, d) {
			in.Former = append(in.Former, d.Labels[naming.Instance])
		}
	}
	for _, f := range failed {
		in.unreadable(g.Log, f)
	}
	return nil
}
