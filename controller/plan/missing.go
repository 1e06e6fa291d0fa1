package plan

import (
	"cmp"
	"maps"
	"slices"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/sandboxstate"
)

// ThePrimary is the name that Lacks returns for the primary.
const ThePrimary = "the primary container"

// Lacks names a part that should exist, is not in w, and whose absence Decide would judge; empty: there is none. While w.Doubt says that
// the absence is not proven, Decide does nothing.
func Lacks(r Record, w World) string {
	if r.Departs() {
		return ""
	}
	mine, _ := split(r, w)
	if r.Failed() {
		if !r.isContradicted(mine) || !mine.primary.Alive() {
			return ""
		}
		r = r.beforeVerdict() // running containers are stopped only once the verdict is certain to stand
	}
	if mine.primary == nil && r.hadPrimary(w) {
		return ThePrimary
	}
	if r.Desired != storev1.RunState_RUN_STATE_RUN {
		return ""
	}
	if mine.network.ID == "" && (r.hadPrimary(w) || len(w.Containers) > 0) {
		return "the network"
	}
	for _, s := range r.Wanted.Services {
		if mine.services[s.Name] == nil && r.hadService(w, s) {
			return "the container of service " + s.Name
		}
	}
	return ""
}

// hadPrimary reports whether a primary was started; if not, the create makes it. A second primary beside one that was started would take
// execs from it.
func (r Record) hadPrimary(w World) bool {
	return w.Begun || r.State != agboxv1.SandboxState_SANDBOX_STATE_PENDING || r.Attempt == storev1.Attempt_ATTEMPT_RESUME ||
		r.Progress.GetPrimaryStarted() || r.Progress.GetCopied() || r.Progress.GetHooksDone() > 0
}

// hadService reports whether the container of a service was created and no failure of it is recorded.
func (r Record) hadService(w World, s Service) bool {
	sp := progressOf(r.Progress, s.Name)
	made := sp.GetStarted() || s.Required && r.hadPrimary(w)
	return made && sp.GetMark() != storev1.ServiceMark_SERVICE_MARK_FAILED
}

// Unseen returns the engine's IDs and the names of recorded parts that are not in w.
func Unseen(r Record, w World) (containers, networks []string) {
	if r.Standing != Live {
		return nil, nil
	}
	mine, _ := split(r, w)
	want := func(c *Container, id, name string) {
		if c != nil {
			return
		}
		if id != "" {
			containers = append(containers, id)
		}
		containers = append(containers, name)
	}
	if r.hadPrimary(w) {
		want(mine.primary, r.Objects.GetPrimaryId(), naming.Primary(r.ID))
	}
	for _, s := range r.Wanted.Services {
		if r.hadService(w, s) {
			want(mine.services[s.Name], r.Objects.GetServiceIds()[s.Name], naming.Service(r.ID, s.Name))
		}
	}
	seen := func(id string) bool {
		return slices.ContainsFunc(w.Networks, func(n Network) bool { return n.ID == id })
	}
	if id := r.Objects.GetNetworkId(); id != "" && !seen(id) {
		networks = append(networks, id)
	}
	for _, c := range mine.containers(r.Wanted) {
		for _, id := range c.NetworkIDs {
			if !seen(id) && !slices.Contains(networks, id) {
				networks = append(networks, id)
			}
		}
	}
	if mine.network.ID == "" && (r.hadPrimary(w) || len(w.Containers) > 0) {
		networks = append(networks, naming.Network(r.ID))
	}
	return containers, networks
}

// PartOf returns the container of the primary (""), or of the named service; nil if w does not contain it.
func PartOf(r Record, w World, service string) *Container {
	mine, _ := split(r, w)
	if service == "" {
		return mine.primary
	}
	return mine.services[service]
}

// ObjectsOf returns the IDs of the parts in w, and the recorded IDs of parts not in w.
func ObjectsOf(r Record, w World) *storev1.Objects {
	mine, _ := split(r, w)
	o := &storev1.Objects{
		PrimaryId: r.Objects.GetPrimaryId(), NetworkId: cmp.Or(mine.network.ID, r.Objects.GetNetworkId()), ServiceIds: map[string]string{},
	}
	maps.Copy(o.ServiceIds, r.Objects.GetServiceIds())
	if mine.primary != nil {
		o.PrimaryId = mine.primary.ID
	}
	for name, c := range mine.services {
		o.ServiceIds[name] = c.ID
	}
	return o
}

// reasonWithdrawn is the reason of SANDBOX_RECOVERED after a withdrawn verdict.
const reasonWithdrawn = "verdict_withdrawn"

// judgedMissing returns p with the failure of a sandbox whose part is missing. withdraw reverts it if the part is observed again.
func (p Plan) judgedMissing(r Record, code, text string) Plan {
	p.After.Progress = copyOf(r.Progress)
	p.After.Progress.Missing, p.After.Progress.MissingFrom = true, r.State
	return p.with(Failed(code, text))
}

// withdraw reverts a verdict of absence when no part is missing any more; it stops no running container. The next pass judges the sandbox
// as if there had been no verdict. Only the container whose absence was judged, found by its ID, contradicts the verdict. A verdict that
// would be made again at once stands.
func withdraw(r Record, w World, pol Policy, now time.Time) (Plan, bool) {
	mine, _ := split(r, w)
	if !r.isContradicted(mine) {
		return Plan{}, false
	}
	before := r.beforeVerdict()
	judged := before
	judged.DeadlineAt = time.Time{} // Decide acts on a deadline before it judges what is missing
	if again := Decide(judged, w, pol, now); again.InDoubt || again.After.Progress.GetMissing() {
		return Plan{}, false
	}
	creates := before.State == agboxv1.SandboxState_SANDBOX_STATE_PENDING
	if creates && len(w.Stopping) > 0 {
		return Plan{Waiting: "waiting for a stop to end"}, true // the end of the stop enqueues the key
	}
	recovered := phase(agboxv1.EventType_SANDBOX_RECOVERED, reasonWithdrawn)
	recovered.SandboxState = before.State
	p := Plan{}.with(recovered)
	p.After.Progress = before.Progress
	if creates { // the failure has stopped services; their ends are none of their own
		for name, s := range p.After.Progress.Services {
			if c := mine.services[name]; c == nil || !c.Alive() {
				s.Started = false
			}
		}
	}
	return p, true
}

// isContradicted reports that the primary of a sandbox that failed as missing is observed, with its recorded ID. A create has recorded none.
func (r Record) isContradicted(mine parts) bool {
	id := r.Objects.GetPrimaryId()
	return r.Progress.GetMissing() && mine.primary != nil && (id == "" || id == mine.primary.ID)
}

// beforeVerdict returns the record without the verdict of absence.
func (r Record) beforeVerdict() Record {
	r.State, r.Progress = stateBefore(r), copyOf(r.Progress)
	r.Progress.Missing, r.Progress.MissingFrom = false, agboxv1.SandboxState_SANDBOX_STATE_UNSPECIFIED
	return r
}

// stateBefore returns the state of a sandbox before a verdict of absence: the recorded one, unless the intent has changed since. A record
// of an earlier version has none; then it is derived from the intent.
func stateBefore(r Record) agboxv1.SandboxState {
	if from := r.Progress.GetMissingFrom(); sandboxstate.Allows(from, r.Desired) {
		return from
	}
	if r.Desired == storev1.RunState_RUN_STATE_RUN && r.ErrorCode == CodeResumeFailed {
		return agboxv1.SandboxState_SANDBOX_STATE_PENDING
	}
	return sandboxstate.Goal(r.Desired)
}
