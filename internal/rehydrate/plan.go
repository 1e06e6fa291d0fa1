package rehydrate

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/naming"
	"github.com/agbox/agbox/store"
)

// Source is what a record was rebuilt from.
type Source string

// The sources.
const (
	FromFile    Source = "record file"
	FromLabels  Source = "labels"
	FromInspect Source = "inspect"
)

// Sandbox is one record as it is to be adopted.
type Sandbox struct {
	store.Rebuilt
	Source Source
}

// Output is what there is to adopt, and what is left alone.
type Output struct {
	// Sandboxes: those with record files first, then the newest first. Of two that had one name the first in the list gets
	// it.
	Sandboxes []Sandbox
	Skipped   []Skipped
	// Former are the instances other than this store's whose objects are ours, sorted.
	Former []string
}

// Rebuilt is what the store is to adopt.
func (o Output) Rebuilt() []store.Rebuilt {
	list := make([]store.Rebuilt, 0, len(o.Sandboxes))
	for _, s := range o.Sandboxes {
		list = append(list, s.Rebuilt)
	}
	return list
}

// Plan decides what becomes of everything that was found. It changes nothing of its input.
//
//	record file                            as it says
//	nothing but its network or services    FAILED, CONTAINER_MISSING
//	primary created, never started         PENDING: the create goes on
//	  started, not released yet            PENDING: resumed, or created on where hooks have not all run
//	  running                              READY; FAILED when it was cut off in a hook
//	  paused                               PAUSED, frozen
//	  ended by the engine's or host's end  READY under another life: the controller restarts it, or fails it, as configured
//	  ended, code 0 or 143                 STOPPED: as a stop of ours leaves it
//	  ended, killed for memory             FAILED, CONTAINER_OOM
//	  ended otherwise                      FAILED, CONTAINER_DIED; READY where its restart_policy brings it back
//	  dead or being removed                FAILED, CONTAINER_MISSING
//	not ours, or not readable              skipped
func Plan(in Input, now time.Time) Output {
	instances, former := in.instances(in.Known, in.Found)
	out := Output{Skipped: slices.Clone(in.Skipped), Former: former}
	for _, k := range in.Known {
		out.Sandboxes = append(out.Sandboxes, fromFile(k, now))
	}
	var rebuilt []Sandbox
	for _, f := range in.Found {
		p, ok := f.claim(instances)
		out.Skipped = append(out.Skipped, p.skipped...)
		if !ok {
			continue
		}
		if f.unclear(p) {
			out.Skipped = append(out.Skipped, Skipped{
				Kind: "record", SandboxID: f.ID, Reason: "one of its containers can't be inspected", Unreadable: true,
			})
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

// instances are this store's, and the former ones: those that record files and primaries of ours name.
func (in Input) instances(known []Known, found []Found) (all map[string]bool, former []string) {
	all = map[string]bool{}
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
	delete(all, in.Instance)
	former = slices.Sorted(maps.Keys(all))
	if in.Instance != "" {
		all[in.Instance] = true
	}
	return all, former
}

// unclear reports that what could not be inspected may be a part of the record: without its primary nothing is known, and
// without a label a service would be missing in the spec, and be removed for it.
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

// fromFile adds to a record file the execs that only their own files know.
func fromFile(k Known, now time.Time) Sandbox {
	s := Sandbox{Source: FromFile, Rebuilt: store.Rebuilt{Record: k.Record, Execs: slices.Clone(k.Execs)}}
	if k.Record.GetDesired().GetRunState() == storev1.RunState_RUN_STATE_DELETE {
		return s
	}
	have := map[string]bool{}
	for _, e := range k.Execs {
		have[e.GetExecId()] = true
	}
	for _, t := range k.Traces {
		if e := execOf(k.Record.GetSandboxId(), t, now); e != nil && !have[e.GetExecId()] {
			s.Execs = append(s.Execs, e)
			s.Defaulted = []string{"execs"}
		}
	}
	return s
}

// rebuild makes the record of a sandbox without a record file.
func (in Input) rebuild(f Found, p parts, now time.Time) Sandbox {
	r := rebuild{in: in, f: f, p: p, now: now, defaulted: map[string]bool{
		"created_at": true, "last_sequence": true, "updates": true, "state_changed_at": true, "deadline_at": true,
	}}
	r.makeSpec()
	for _, t := range f.Traces {
		if e := execOf(f.ID, t, now); e != nil {
			r.execs = append(r.execs, e)
			if len(e.GetRequest().GetCommand()) == 0 {
				r.guess("execs")
			}
		}
	}
	if f.Unread > 0 {
		r.guess("execs")
	}
	rec := r.record()
	return Sandbox{Source: r.source, Rebuilt: store.Rebuilt{
		Record: rec, Execs: r.execs, Defaulted: slices.Sorted(maps.Keys(r.defaulted)),
	}}
}

// rebuild is the making of one record.
type rebuild struct {
	in        Input
	f         Found
	p         parts
	now       time.Time
	source    Source
	spec      *agboxv1.CreateSpec
	tools     []*storev1.ToolMount
	execs     []*storev1.ExecRecord
	defaulted map[string]bool
}

func (r *rebuild) guess(fields ...string) {
	for _, f := range fields {
		r.defaulted[f] = true
	}
}

func (r *rebuild) record() *storev1.SandboxRecord {
	v := r.judge()
	rec := &storev1.SandboxRecord{
		Version: 1, SandboxId: r.f.ID, Instance: r.in.Instance, CreatedAt: r.created().UnixNano(), Spec: r.spec,
		State: int32(v.state), StateChangedAt: r.now.UnixNano(), ErrorCode: v.code, ErrorMessage: v.message,
		Progress: v.progress, Preparing: v.attempt == storev1.Attempt_ATTEMPT_CREATE,
		// Larger than any that was: events are fewer than the seconds since 1970.
		LastSequence: uint64(max(r.now.Unix(), 2)),
		Desired: &storev1.Desired{
			RunState: v.want, Generation: 1, Attempt: v.attempt, RequestedAt: r.now.UnixNano(), Name: r.name(),
			EngineRun: v.life, ToolMounts: r.tools,
		},
	}
	if v.attempt == storev1.Attempt_ATTEMPT_CREATE { // runtime.interrupted_create asks when it was accepted
		rec.Desired.RequestedAt = rec.CreatedAt
	}
	if v.state == agboxv1.SandboxState_SANDBOX_STATE_READY {
		rec.Desired.DeadlineAt = r.deadline()
		rec.IdleSince = r.idleSince()
	}
	return rec
}

// created is when the oldest of the objects was.
func (r *rebuild) created() time.Time {
	t := r.now
	for _, c := range r.p.all() {
		if !c.Created.IsZero() && c.Created.Before(t) {
			t = c.Created
		}
	}
	return t
}

func (p parts) all() []dockerx.ContainerDetail {
	all := slices.Clone(p.services)
	if p.primary != nil {
		all = append(all, *p.primary)
	}
	return all
}

// deadline begins anew.
func (r *rebuild) deadline() int64 {
	timeout := r.in.Timeout
	if r.spec.GetTimeout() != nil {
		timeout = r.spec.GetTimeout().AsDuration()
	}
	if timeout <= 0 {
		return 0
	}
	return r.now.Add(timeout).UnixNano()
}

// idleSince is the later of the start and the last end of an exec; zero while one is active. What a journal says of times
// to come is not believed.
func (r *rebuild) idleSince() int64 {
	since := r.p.primary.StartedAt.UnixNano()
	for _, e := range r.execs {
		if e.GetEnd() == nil {
			return 0
		}
		since = max(since, e.GetEnd().GetEndedAt())
	}
	return min(since, r.now.UnixNano())
}
