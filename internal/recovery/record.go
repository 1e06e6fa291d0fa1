package recovery

import (
	"slices"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
)

// rebuild builds the record of a sandbox that is not in the log.
func (in Input) rebuild(f Found, p parts, now time.Time) Sandbox {
	r := in.begin(f, p, now)
	r.guess("created_at", "updates")
	r.makeSpec()
	for _, t := range f.Traces {
		if e := execOf(f.ID, t, now); e != nil {
			r.Execs = append(r.Execs, e)
			if len(e.GetRequest().GetCommand()) == 0 {
				r.guess("execs")
			}
		}
	}
	if f.Unread > 0 {
		r.guess("execs")
	}
	r.Record = r.record()
	return r.Sandbox
}

func (in Input) begin(f Found, p parts, now time.Time) *rebuild {
	r := &rebuild{in: in, f: f, p: p, now: now}
	r.guess("last_sequence", "state_changed_at", "deadline_at")
	return r
}

// rebuild is the state of building one record.
type rebuild struct {
	Sandbox

	in    Input
	f     Found
	p     parts
	now   time.Time
	spec  *agboxv1.CreateSpec
	tools []*storev1.ToolMount
	// wasUp: an incomplete record shows that the sandbox has been READY.
	wasUp bool
	// confinement is that of the primary's label; nil if there is none.
	confinement *storev1.Confinement
}

func (r *rebuild) record() *storev1.SandboxRecord {
	rec := &storev1.SandboxRecord{
		Version: 1, SandboxId: r.f.ID, Instance: r.in.Instance, CreatedAt: r.created().UnixNano(), Spec: r.spec,
		StateChangedAt: r.now.UnixNano(), LastSequence: sequenceFloor(r.now),
		Desired: &storev1.Desired{Generation: 1, Name: r.name(), Caller: r.caller()},
	}
	r.overrule(rec)
	return rec
}

// caller returns who created the sandbox; empty: the primary is missing or has no such label.
func (r *rebuild) caller() string {
	if r.p.primary == nil {
		return ""
	}
	return r.p.primary.Labels[naming.Caller]
}

// created returns the creation time of the oldest object.
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

// deadline returns the deadline of a lifetime that starts now; 0: none.
func (in Input) deadline(spec *agboxv1.CreateSpec, now time.Time) int64 {
	timeout := in.Timeout
	if spec.GetTimeout() != nil {
		timeout = spec.GetTimeout().AsDuration()
	}
	if timeout <= 0 {
		return 0
	}
	return now.Add(timeout).UnixNano()
}

// sequenceFloor exceeds any used sequence: there are fewer events than seconds since 1970.
func sequenceFloor(now time.Time) uint64 { return uint64(max(now.Unix(), 2)) }

// idleSince returns the later of the start and the last end of an exec; zero while one is active. Future times in a journal
// are ignored.
func (r *rebuild) idleSince() int64 {
	since := r.p.primary.StartedAt.UnixNano()
	for _, e := range r.Execs {
		if e.GetEnd() == nil {
			return 0
		}
		since = max(since, e.GetEnd().GetEndedAt())
	}
	return min(since, r.now.UnixNano())
}
