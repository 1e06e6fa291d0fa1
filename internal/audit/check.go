package audit

import (
	"maps"
	"slices"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Short names of the states.
const (
	pending  = agboxv1.SandboxState_SANDBOX_STATE_PENDING
	ready    = agboxv1.SandboxState_SANDBOX_STATE_READY
	failed   = agboxv1.SandboxState_SANDBOX_STATE_FAILED
	stopped  = agboxv1.SandboxState_SANDBOX_STATE_STOPPED
	deleting = agboxv1.SandboxState_SANDBOX_STATE_DELETING
	deleted  = agboxv1.SandboxState_SANDBOX_STATE_DELETED
	paused   = agboxv1.SandboxState_SANDBOX_STATE_PAUSED
)

const (
	wantRun    = storev1.RunState_RUN_STATE_RUN
	wantStop   = storev1.RunState_RUN_STATE_STOP
	wantDelete = storev1.RunState_RUN_STATE_DELETE
	wantPause  = storev1.RunState_RUN_STATE_PAUSE
)

// startPatience is how long a new exec of a READY sandbox may take until it has a journal.
const startPatience = 30 * time.Second

// auditor checks the facts of one round.
type auditor struct {
	*facts
	findings
}

// judge returns all violations of invariants, in the order of the objects.
func judge(f *facts) []Finding {
	a := &auditor{facts: f}
	a.list = append(a.list, f.records.list...)
	a.about(hard, "I1", "instance", "").when(len(f.records.instance.GetUuid()) == 0, "the database has no UUID")
	for _, id := range slices.Sorted(maps.Keys(f.records.sandboxes)) {
		a.sandbox(f.records.sandboxes[id])
	}
	a.nameHolders()
	a.execReferences()
	for _, id := range slices.Sorted(maps.Keys(f.records.agents)) {
		a.agent(f.records.agents[id])
	}
	a.agentNames()
	a.objects()
	a.volumes()
	a.rootVolumes()
	a.leftRules()
	a.directories()
	a.ledgerEntries()
	a.log()
	if f.records.rebuild {
		a.whileRebuilding()
	}
	return a.list
}

// whileRebuilding turns findings about missing records into warnings: not all records are rebuilt yet.
func (a *auditor) whileRebuilding() {
	for i := range a.list {
		switch a.list[i].Invariant {
		case "I9", "I12", "I18", "I19", "I25":
			a.list[i].severity = note
		}
	}
}

func (a *auditor) sandbox(sb *sandbox) {
	a.about(hard, "I2", sandboxName(sb), "").when(!a.records.sandboxIDs[sb.id], "its ID is not reserved")
	if sb.gone() && sb.spec == nil && sb.desired == nil {
		return // its history is being purged, which the next start would finish
	}
	if sb.spec == nil || sb.desired == nil || len(sb.events) == 0 {
		a.report(hard, "I1", sandboxName(sb), "", "its record is incomplete: spec %t, intent %t, %d events", sb.spec != nil, sb.desired != nil, len(sb.events))
		return
	}
	a.sequence(sb)
	a.execs(sb)
	a.holdsName(sb)
	if !a.records.hidden[sb.id] { // else its state is recorded when the rebuild is complete
		a.transitions(sb)
		a.inDocker(sb)
	}
}

func sandboxName(sb *sandbox) string { return "sandbox " + sb.id }

// counts returns the number of checked objects, by kind.
func (f *facts) counts() map[string]int {
	c := map[string]int{
		"sandboxes": len(f.records.sandboxes), "agents": len(f.records.agents), "containers": len(f.world.containers),
		"networks": len(f.world.networks), "volumes": len(f.world.volumes), "volumes of roots": len(f.world.roots), "log directories": len(f.files.logs), "record directories": len(f.files.runs),
		"streams": f.files.streams, "ledger entries": len(f.ledger),
	}
	if f.packets != nil {
		c["bridges with rules"] = len(f.packets.bridges())
	}
	for _, sb := range f.records.sandboxes {
		c["events"] += len(sb.events)
		c["execs"] += len(sb.execs)
		for _, e := range sb.execs {
			if e.end == nil {
				c["active execs"]++
			}
		}
	}
	for _, d := range f.files.logs {
		c["journals"] += len(d.journals)
	}
	for _, a := range f.records.agents {
		c["agent events"] += len(a.events)
	}
	return c
}
