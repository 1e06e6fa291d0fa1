package recovery

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/store"
)

// Source is the source that a record was rebuilt from.
type Source string

// The sources.
const (
	FromLog     Source = "log"
	FromLabels  Source = "labels"
	FromInspect Source = "inspect"
)

// Sources lists every source.
func Sources() []Source { return []Source{FromLog, FromLabels, FromInspect} }

// Sandbox is one rebuilt record.
type Sandbox struct {
	store.Rebuilt
	Source Source
}

// Output lists the rebuilt records, and the objects to leave alone.
type Output struct {
	// Sandboxes are those of the log, then the others, newest first. If two had one name, the first in the list
	// keeps it.
	Sandboxes []Sandbox
	Skipped   []Skipped
	// Former are the instances other than this store's that name objects of this daemon, sorted.
	Former []string
}

// Rebuilt returns the records for the store to commit.
func (o Output) Rebuilt() []store.Rebuilt {
	list := make([]store.Rebuilt, 0, len(o.Sandboxes))
	for _, s := range o.Sandboxes {
		list = append(list, s.Rebuilt)
	}
	return list
}

// Plan decides about all gathered data. It does not change its input.
//
//	record of a complete log               unchanged
//	record of a log that lost its end      deleted if that was requested; otherwise by the engine's state, with the record's
//	                                       spec and name, if its containers have that spec; FAILED and STOPPED if it does not run
//	only its network or services exist     FAILED, CONTAINER_MISSING
//	primary created, never started         PENDING: the create continues
//	  started, not released yet            PENDING: resumed, or the create continues if hooks are missing
//	  running                              READY; FAILED when a hook was interrupted
//	  paused                               PAUSED, frozen
//	  ended by the engine's or host's end  READY with another engine run: the controller restarts it, or fails it, as configured
//	  ended, code 0 or 143                 STOPPED: as after a requested stop
//	  ended, killed for memory             FAILED, CONTAINER_OOM
//	  ended otherwise                      FAILED, CONTAINER_DIED; STOPPED where its restart_policy would restart it, as a
//	                                       stop may have ended it
//	  dead or being removed                FAILED, CONTAINER_MISSING
//	not this daemon's, or not readable     skipped
func Plan(in Input, now time.Time) Output {
	instances := in.instances(in.Known, in.Found)
	former := slices.DeleteFunc(slices.Sorted(maps.Keys(instances)), func(uuid string) bool { return uuid == in.Instance })
	out := Output{Skipped: slices.Clone(in.Skipped), Former: former}
	torn := map[string]Known{}
	for _, k := range in.Known {
		if k.NeedsEngine() {
			torn[k.Record.GetSandboxId()] = k
			continue
		}
		out.Sandboxes = append(out.Sandboxes, in.fromLog(k, now))
	}
	var rebuilt []Sandbox
	for _, f := range in.Found {
		p, ok := f.claim(instances)
		out.Skipped = append(out.Skipped, p.skipped...)
		k, filed := torn[f.ID]
		if !ok && !filed {
			continue
		}
		if f.unclear(p) {
			out.Skipped = append(out.Skipped, Skipped{
				Kind: "record", SandboxID: f.ID, Reason: "one of its containers can't be inspected", Unreadable: true,
			})
			continue
		}
		if filed {
			rebuilt = append(rebuilt, in.fromTorn(k, f, p, now))
			continue
		}
		rebuilt = append(rebuilt, in.rebuild(f, p, now))
	}
	slices.SortStableFunc(rebuilt, func(a, b Sandbox) int {
		return cmp.Or(cmp.Compare(b.Record.GetCreatedAt(), a.Record.GetCreatedAt()), strings.Compare(a.Record.GetSandboxId(), b.Record.GetSandboxId()))
	})
	out.Sandboxes = append(out.Sandboxes, rebuilt...)
	out.settleExecs(in)
	return out
}

// instances returns this store's, the former ones, and those named by the log's records and by primaries of this daemon.
func (in Input) instances(known []Known, found []Found) map[string]bool {
	all := map[string]bool{in.Instance: true}
	for _, uuid := range in.Former {
		all[uuid] = true
	}
	for _, k := range known {
		all[k.Record.GetInstance()] = true
	}
	for _, f := range found {
		for _, c := range f.Containers {
			if isPrimary(c.Container) && owns(f.Ctl, c) {
				all[c.Labels[naming.Instance]] = true
			}
		}
	}
	delete(all, "")
	return all
}

// unclear reports whether a failed inspection may concern the record: without its primary nothing is known, and without a spec
// label the service would be missing in the spec, and be removed.
func (f Found) unclear(p parts) bool {
	if len(f.Unreadable) == 0 {
		return false
	}
	if p.primary == nil {
		return true
	}
	_, err := plan.ParseSpecLabel(p.primary.Labels[naming.Spec])
	return err != nil
}

// fromLog adds to a record of the log the execs that only have files.
func (in Input) fromLog(k Known, now time.Time) Sandbox {
	s := Sandbox{Source: FromLog, Rebuilt: store.Rebuilt{Record: k.Record, Execs: slices.Clone(k.Execs)}}
	if k.Torn {
		s.Record = in.stale(k.Record, now)
		s.guess("record", "last_sequence", "state_changed_at", "deadline_at", "execs")
	}
	if k.isDeleted() {
		return s
	}
	have := map[string]bool{}
	for _, e := range k.Execs {
		have[e.GetExecId()] = true
	}
	for _, t := range k.Traces {
		if e := execOf(k.Record.GetSandboxId(), t, now); e != nil && !have[e.GetExecId()] {
			s.Execs = append(s.Execs, e)
			s.guess("execs")
		}
	}
	return s
}
