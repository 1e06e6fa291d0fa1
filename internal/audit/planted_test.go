package audit

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/audit/stream"
)

func TestSoundSiteHasNoFindings(t *testing.T) {
	r := sound(t).mirror().run()
	if !r.OK() || len(r.Warnings) > 0 {
		var b strings.Builder
		r.Write(&b)
		t.Fatal(b.String())
	}
	for _, what := range []string{"sandboxes", "execs", "active execs", "events", "agents", "agent events", "journals", "streams", "containers",
		"networks", "bridges with rules", "volumes of roots", "log directories", "record directories", "ledger entries"} {
		if r.Counts[what] == 0 {
			t.Errorf("it looked at no %s", what)
		}
	}
}

// planted is one violation, and the expected start of its finding.
type planted struct {
	name  string
	plant func(p *place)
	want  string
}

// late plants after the log was derived from the records; early changes both.
func late(fn func(p *place)) func(p *place) {
	return func(p *place) { p.mirror(); fn(p) }
}

func early(fn func(p *place)) func(p *place) {
	return func(p *place) { fn(p); p.mirror() }
}

func (p *place) one(id, component string) *container {
	p.t.Helper()
	for i := range p.world.containers {
		if c := &p.world.containers[i]; c.sandbox() == id && c.Labels[labelComponent] == component {
			return c
		}
	}
	p.t.Fatalf("sandbox %s has no %s", id, component)
	return nil
}

var databaseViolations = []planted{
	{"a record that does not decode", late(func(p *place) { p.put("sandbox-config", "web", []byte{0xff}) }), "I1 spec of sandbox web: the record does not decode"},
	{"a record without its companion", late(func(p *place) { delete(p.db["sandbox-desired"], "web") }), "I1 sandbox web: its record is incomplete"},
	{"an exec without its intent", late(func(p *place) { delete(p.db["exec-desired:web"], "act-1") }), "I1 exec act-1: its record is incomplete"},
	{"an integer of another width", late(func(p *place) { p.put("sandbox-state", "web", []byte{1}) }), "I1 state of sandbox web: the integer has 1 bytes"},
	{"a sandbox ID that is not reserved", early(func(p *place) { delete(p.db["sandbox-ids"], "still") }), "I2 sandbox still: its ID is not reserved"},
	{"an exec ID that is not reserved", early(func(p *place) { delete(p.db["exec-ids"], "led-1") }), "I2 exec led-1: its ID is not reserved"},
	{"an agent ID that is not reserved", early(func(p *place) { delete(p.db["agent-ids"], "helper") }), "I2 agent helper: its ID is not reserved"},
	{"a name of a deleted sandbox", early(func(p *place) { p.put("sandbox-names", "was", p.message(&storev1.NameRef{SandboxId: "gone"})) }), "I3 name was: sandbox \"gone\" holds it, which is not live"},
	{"a name that its sandbox does not hold", early(func(p *place) { delete(p.db["sandbox-names"], "web") }), "I3 sandbox web: its name \"web\" is held by \"\""},
	{"a name of another sandbox", early(func(p *place) { p.put("sandbox-names", "x", p.message(&storev1.NameRef{SandboxId: "web"})) }), "I3 name x: sandbox web holds it, whose name is \"web\""},
	{"two agents of one name", early(func(p *place) {
		p.put("agent-ids", "other", num(1))
		p.put("agent-config", "other", p.db["agent-config"]["helper"])
		p.put("agent-desired", "other", p.db["agent-desired"]["helper"])
		p.put("agent-status", "other", p.message(&storev1.AgentStatus{State: agentPending}))
	}), "I3 agent name helper: agents helper and other both hold it"},
	{"a gap", early(func(p *place) { delete(p.db["events:web"], numKey(2)) }), "I4 sandbox web: event 3 follows event 1"},
	{"no first event", early(func(p *place) { delete(p.db["events:still"], numKey(1)) }), "I4 sandbox still: its first event is 2"},
	{"an event of another place", early(func(p *place) { p.editEvent("web", 3, func(e *agboxv1.SandboxEvent) { e.EventId = "web-9" }) }), "I4 sandbox web: event 3 says that it is \"web-9\""},
	{"an event without a time", early(func(p *place) { p.editEvent("web", 3, func(e *agboxv1.SandboxEvent) { e.OccurredAt = nil }) }), "I4 sandbox web: event 3 has no time"},
	{"an illegal change of state", early(func(p *place) {
		p.editEvent("still", 4, func(e *agboxv1.SandboxEvent) {
			e.EventType = agboxv1.EventType_SANDBOX_DELETED
			e.SandboxState = deleted
		})
	}), "I5 sandbox still: event 4, SANDBOX_DELETED, leads from SANDBOX_STATE_READY to SANDBOX_STATE_DELETED"},
	{"an event with another state", early(func(p *place) { p.editEvent("still", 2, func(e *agboxv1.SandboxEvent) { e.SandboxState = stopped }) }), "I5 sandbox still: event 2, SANDBOX_READY, leads from SANDBOX_STATE_PENDING to SANDBOX_STATE_STOPPED"},
	{"a withdrawn failure that restores another state", early(func(p *place) {
		e := &agboxv1.SandboxEvent{EventId: "died-4", Sequence: 4, SandboxId: "died", EventType: eventRecovered, SandboxState: stopped, OccurredAt: timestamppb.Now()}
		p.put("events:died", numKey(4), p.message(e))
		p.put("sandbox-state", "died", num(4))
	}), "I5 sandbox died: event 4, SANDBOX_RECOVERED, leads from SANDBOX_STATE_FAILED to SANDBOX_STATE_STOPPED, and the sandbox was SANDBOX_STATE_READY"},
	{"life after the end", early(func(p *place) {
		e := &agboxv1.SandboxEvent{EventId: "gone-4", Sequence: 4, SandboxId: "gone", EventType: agboxv1.EventType_SANDBOX_READY, SandboxState: ready, OccurredAt: timestamppb.Now()}
		p.put("events:gone", numKey(4), p.message(e))
	}), "I5 sandbox gone: event 4, SANDBOX_READY, comes after SANDBOX_DELETED"},
	{"a state that is recorded elsewhere", early(func(p *place) { p.put("sandbox-state", "web", num(1)) }), "I5 sandbox web: the state is recorded to begin with event 1"},
	{"deleted without a request", early(func(p *place) {
		edit(p, "sandbox-desired", "gone", &storev1.Desired{}, func(d *storev1.Desired) { d.RunState = wantRun })
	}), "I5 sandbox gone: it is SANDBOX_STATE_DELETED, and the intent is RUN_STATE_RUN"},
	{"deleted and not recorded", early(func(p *place) { delete(p.db["sandbox-deleted-at"], "gone") }), "I5 sandbox gone: its deletion is recorded: false"},
	{"a second start", early(func(p *place) {
		p.editEvent("web", 6, func(e *agboxv1.SandboxEvent) { e.GetExec().ExecId = "led-1" })
	}), "I6 exec led-1: event 6 of sandbox web starts it, and it is not its first"},
	{"a second end", early(func(p *place) {
		p.editEvent("web", 6, func(e *agboxv1.SandboxEvent) { e.GetExec().ExecId = "led-1"; e.EventType = eventCancelled })
	}), "I6 exec led-1: event 6 of sandbox web ends it again"},
	{"an end without an event", early(func(p *place) {
		p.put("exec-status:web", "act-1", p.message(&storev1.ExecEnd{State: 4, Sequence: 9}))
	}), "I6 exec act-1: its end EXEC_STATE_CANCELLED is on record, and no event reports it"},
	{"an end with no number", early(func(p *place) {
		p.put("exec-status:web", "act-1", p.message(&storev1.ExecEnd{State: 4}))
	}), "I6 exec act-1: its end EXEC_STATE_CANCELLED is on record, and no event reports it"},
	{"a rebuild in the middle", early(func(p *place) {
		p.editEvent("web", 3, func(e *agboxv1.SandboxEvent) { e.EventType = agboxv1.EventType_SANDBOX_REHYDRATED })
	}), "I4 sandbox web: event 3 says that the record was rebuilt, but older events exist"},
	{"an end that is not recorded", early(func(p *place) { delete(p.db["exec-status:web"], "led-1") }), "I6 exec led-1: event 5 reports its end, and none is on record"},
	{"another exit code than in the event", early(func(p *place) {
		edit(p, "exec-status:web", "led-1", &storev1.ExecEnd{}, func(e *storev1.ExecEnd) { e.ExitCode = 3 })
	}), "I6 exec led-1: its end is recorded with exit code 3"},
	{"an event of no exec", early(func(p *place) {
		p.editEvent("web", 6, func(e *agboxv1.SandboxEvent) { e.GetExec().ExecId = "nobody" })
	}), "I6 exec nobody: event 6 of sandbox web is about it, and it has no record"},
	{"a reference to nothing", early(func(p *place) { p.put("exec-refs", "act-1", p.message(&storev1.ExecRef{SandboxId: "still"})) }), "I6 exec act-1: it is referred to as of sandbox"},
}

var fileViolations = []planted{
	{"another exit code in the journal", late(func(p *place) {
		p.journal("web", journal{ExecID: "led-1", State: "ended", StartedAt: 10, EndedAt: 20, ExitCode: 7})
	}), "I7 exec led-1: its end is recorded with exit code 0, and its journal says 7"},
	{"an end without a journal", late(func(p *place) { delete(p.files, "logs/web/led-1.journal") }), "I7 exec led-1: it ended EXEC_STATE_FINISHED , and there is no journal of it"},
	{"a finished exec that never ran", late(func(p *place) { p.journal("web", journal{ExecID: "led-1", State: "closed"}) }), "I7 exec led-1: it ended EXEC_STATE_FINISHED"},
	{"a finished exec that was closed on a full disk", late(func(p *place) { p.files["logs/web/led-1.journal"] = nil }), "I7 exec led-1: it ended EXEC_STATE_FINISHED  with exit code 0, and its journal says that it never ran"},
	{"an ended exec that lives", late(func(p *place) {
		p.journal("web", journal{ExecID: "led-1", State: "started"})
		p.held = append(p.held, "logs/web/led-1.lock")
	}), "I7 exec led-1: it ended EXEC_STATE_FINISHED , and its lock is held"},
	{"an end that is not recorded although the journal has it", late(func(p *place) {
		p.journal("web", journal{ExecID: "act-1", State: "ended", StartedAt: 10, EndedAt: 20})
	}), "I8 exec act-1: its journal says \"ended\", and no end is on record"},
	{"a dead exec without a recorded end", late(func(p *place) { p.held = p.held[1:] }), "I8 exec act-1: its journal says that it started, its lock is free"},
	{"an exec that never starts", late(func(p *place) {
		delete(p.files, "logs/web/act-1.journal")
	}), "I8 exec act-1: its sandbox is READY, and it has not started for more than 30s"},
	{"an exec of a stopped sandbox", early(func(p *place) {
		p.editEvent("still", 3, func(e *agboxv1.SandboxEvent) { // in place of STOP_REQUESTED
			e.EventType, e.SandboxState, e.Details = eventStarted, 0, &agboxv1.SandboxEvent_Exec{Exec: &agboxv1.ExecEventDetails{ExecId: "late"}}
		})
		p.execRecord("still", "late", 3, nil)
	}), "I8 exec late: it has not started, and its sandbox is SANDBOX_STATE_STOPPED"},
	{"a journal without a record", late(func(p *place) { p.journal("web", journal{ExecID: "ghost", State: "started"}) }), "I9 exec ghost: sandbox web has a journal of it"},
	{"a lock without a record", late(func(p *place) { p.files["logs/web/ghost.lock"] = nil }), "I9 exec ghost: sandbox web has a lock of it"},
	{"a log that lost its end", late(func(p *place) {
		p.files["logs/web/led-1.stdout.log"] = p.files["logs/web/led-1.stdout.log"][:100]
	}), "I10 exec led-1: led-1.stdout.log has 100 bytes"},
	{"dropped bytes that are not counted", late(func(p *place) {
		n := int64(len(p.files["logs/web/led-1.stdout.log"]))
		p.journal("web", journal{ExecID: "led-1", State: "ended", StartedAt: 10, EndedAt: 20, StdoutBytes: n, StdoutDropped: 5})
	}), "I10 exec led-1: 0 and 0 dropped bytes are on record, and its journal says 5 and 0"},
	{"dropped bytes without the marker", early(func(p *place) {
		n := int64(len(p.files["logs/web/led-1.stdout.log"]))
		p.journal("web", journal{ExecID: "led-1", State: "ended", StartedAt: 10, EndedAt: 20, StdoutBytes: n, StdoutDropped: 5})
		edit(p, "exec-status:web", "led-1", &storev1.ExecEnd{}, func(e *storev1.ExecEnd) { e.StdoutDroppedBytes = 5 })
	}), "I10 exec led-1: 5 bytes of led-1.stdout.log were dropped, and it does not end with the marker"},
	{"a byte of a log changed", late(func(p *place) { p.files["logs/web/led-1.stdout.log"][300] ^= 1 }), "I11 exec led-1: led-1.stdout.log differs from its program's output after byte 300"},
	{"a piece of a log twice", late(func(p *place) {
		log := p.files["logs/web/led-1.stdout.log"]
		p.files["logs/web/led-1.stdout.log"] = append(bytes.Clone(log[:200]), log[100:]...)
	}), "I11 exec led-1: led-1.stdout.log differs from its program's output after byte 2"},
	{"a log that ends early and a journal that agrees", late(func(p *place) {
		p.files["logs/web/led-1.stdout.log"] = p.files["logs/web/led-1.stdout.log"][:500]
		p.journal("web", journal{ExecID: "led-1", State: "ended", StartedAt: 10, EndedAt: 20, StdoutBytes: 500})
	}), "I11 exec led-1: led-1.stdout.log ends after 500 bytes, but its program wrote more"},
	{"a program that was started twice", late(func(p *place) { p.ledger += "start led-1\n" }), "I12 exec led-1: its program was started 2 times"},
	{"a program that never ran", late(func(p *place) { p.ledger = "" }), "I12 exec led-1: it ended EXEC_STATE_FINISHED , and its program was never started"},
	{"a program with another exit code", late(func(p *place) { p.ledger = "start led-1\nend led-1 4\n" }), "I12 exec led-1: it is FINISHED, and its program notes an end: true, exit code 4"},
	{"a program without a record", late(func(p *place) { p.ledger += "start led-2\n" }), "I12 exec led-2: its program ran, and it is not on record"},
	{"no log", late(func(p *place) { delete(p.files, theSnapshot); delete(p.files, theSegment) }), "I13 log: it can't be replayed to transaction 2 of the database: there is no snapshot"},
	{"a torn log", late(func(p *place) { p.files[theSegment] = p.files[theSegment][:len(p.files[theSegment])/2] }), "I13 log: it can't be replayed to transaction 2 of the database: a frame of segment-00000003 is torn"},
	{"a log with a wrong bit", late(func(p *place) { p.files[theSegment][100] ^= 1 }), "I13 log: it can't be replayed to transaction 2 of the database: a frame of segment-00000003 has a wrong checksum"},
	{"a log that is behind", late(func(p *place) {
		p.files[theSegment] = frame('S', make([]byte, 10))
	}), "I13 log: it can't be replayed to transaction 2 of the database: it ends with transaction 1"},
	{"a record that differs in the log", late(func(p *place) {
		edit(p, "agent-status", "helper", &storev1.AgentStatus{}, func(s *storev1.AgentStatus) { s.Version++ })
	}), "I13 log: replayed to transaction 2, its record \"helper\" of bucket agent-status differs from the database (exists: true)"},
	{"a record that only the log has", late(func(p *place) { delete(p.db["sandbox-state"], "web") }), "I13 log: replayed to transaction 2, its record \"web\" of bucket sandbox-state is not in the database"},
}

var worldViolations = []planted{
	{"READY and dead", late(func(p *place) { p.one("web", "primary").State = "exited" }), "I14 sandbox web: it is READY, and its primary is exited"},
	{"READY and frozen", late(func(p *place) { p.one("web", "primary").State = "paused" }), "I14 sandbox web: it is READY, and its primary is paused"},
	{"READY without a container", late(func(p *place) { p.world.containers = p.world.containers[1:] }), "I14 sandbox web: it is READY and has 0 primary containers"},
	{"READY without its network", late(func(p *place) { p.world.networks = p.world.networks[1:] }), "I14 sandbox web: it is READY, and its primary is not attached to its network"},
	{"READY and detached", late(func(p *place) { p.one("web", "primary").Settings.Networks = nil }), "I14 sandbox web: it is READY, and its primary is not attached to its network"},
	{"a failed service without an event", late(func(p *place) { p.one("web", "service").State = "exited" }), "I14 sandbox web: service db is reported READY, and its container does not run"},
	{"STOPPED and running", late(func(p *place) { p.one("still", "primary").State = "running" }), "I15 sandbox still: it is STOPPED, and container agbox-primary-still is running"},
	{"PAUSED and running", late(func(p *place) { p.one("cold", "primary").State = "running" }), "I16 sandbox cold: it is PAUSED (demoted: false), and container agbox-primary-cold is running"},
	{"demoted and frozen", early(func(p *place) {
		edit(p, "sandbox-desired", "cold", &storev1.Desired{}, func(d *storev1.Desired) { d.DemotedAt = 5 })
	}), "I16 sandbox cold: it is PAUSED (demoted: true), and container agbox-primary-cold is paused"},
	{"FAILED and running", late(func(p *place) { p.one("died", "primary").State = "running" }), "I17 sandbox died: it is FAILED, and container agbox-primary-died is running"},
	{"a failed create that left a container", late(func(p *place) { p.container("bad", "primary", "", "exited") }), "I17 sandbox bad: its create FAILED, and container agbox-primary-bad exists"},
	{"a failed create that left a network", late(func(p *place) { p.network("bad") }), "I17 sandbox bad: its create FAILED, and network agbox-net-bad exists"},
	{"DELETED and a container is left", late(func(p *place) { p.container("gone", "primary", "", "exited") }), "I18 sandbox gone: it is DELETED, and container agbox-primary-gone exists"},
	{"DELETED and a network is left", late(func(p *place) { p.network("gone") }), "I18 sandbox gone: it is DELETED, and network agbox-net-gone exists"},
	{"DELETED and a log is left", late(func(p *place) { p.files["logs/gone/x.stdout.log"] = nil }), "I18 log directory gone: its sandbox gone is deleted"},
	{"DELETED and its directory is left", late(func(p *place) { p.files["s/"+runName("gone")+"/ctl/x"] = nil }), "I18 record directory " + runName("gone")},
	{"purged and a container is left", late(func(p *place) { p.container("purged", "primary", "", "running") }), "I18 container agbox-primary-purged: its sandbox purged is deleted"},
	{"a container without a record", late(func(p *place) { p.container("alien", "primary", "", "running") }), "I19 container agbox-primary-alien: its sandbox \"alien\" is not on record"},
	{"a log directory without a record", late(func(p *place) { p.files["logs/alien/x"] = nil }), "I19 log directory alien: sandbox alien is not on record"},
	{"a record directory without a record", late(func(p *place) { p.files["s/0123456789abcdef/record"] = nil }), "I19 record directory 0123456789abcdef"},
	{"a second primary", late(func(p *place) { p.container("still", "primary", "", "exited") }), "I19 sandbox still: it has 2 primary containers and 1 networks"},
	{"a volume of another name", late(func(p *place) { p.volume("other", p.one("web", "primary")) }), "I23 volume other/data: container agbox-primary-web of sandbox web mounts it, whose name is \"web\""},
	{"a volume that two sandboxes mount", late(func(p *place) { p.volume("web", p.one("web", "primary"), p.one("still", "primary")) }), "I23 volume web/data: containers of 2 sandboxes mount it"},
	{"a service that is not in the spec", late(func(p *place) { p.container("web", "service", "cache", "running") }), "I19 sandbox web: container agbox-service-web is of service \"cache\""},
}

var agentViolations = []planted{
	{"an older incarnation that lives", early(func(p *place) {
		edit(p, "agent-status", "helper", &storev1.AgentStatus{}, func(s *storev1.AgentStatus) { s.Incarnation = 2 })
		edit(p, "agent-position", "helper", &storev1.AgentPosition{}, func(s *storev1.AgentPosition) { s.Incarnation = 2 })
	}), "I20 agent helper: its newest incarnation is 2, and exec helper.1 of sandbox web has not ended"},
	{"a newer incarnation", early(func(p *place) {
		edit(p, "agent-status", "helper", &storev1.AgentStatus{}, func(s *storev1.AgentStatus) { s.Incarnation = 0 })
	}), "I20 agent helper: its newest incarnation is 0, and exec helper.1 is on record"},
	{"a process in another sandbox", early(func(p *place) {
		edit(p, "agent-desired", "helper", &storev1.AgentDesired{}, func(d *storev1.AgentDesired) { d.SandboxId = "still" })
	}), "I20 agent helper: it belongs to sandbox still, and its process is in sandbox web"},
	{"stopped and alive", early(func(p *place) {
		edit(p, "agent-status", "helper", &storev1.AgentStatus{}, func(s *storev1.AgentStatus) { s.State, s.PromptId = agentStopped, "" })
	}), "I20 agent helper: it is AGENT_STATE_STOPPED, and its incarnation 1 has not ended"},
	{"busy with nothing", early(func(p *place) {
		edit(p, "agent-status", "helper", &storev1.AgentStatus{}, func(s *storev1.AgentStatus) { s.PromptId = "" })
	}), "I20 agent helper: it is AGENT_STATE_BUSY with prompt \"\""},
	{"a process without a start", early(func(p *place) {
		edit(p, "agent-status", "helper", &storev1.AgentStatus{}, func(s *storev1.AgentStatus) { s.Incarnation = 2 })
	}), "I20 agent helper: it is AGENT_STATE_BUSY, and no exec of its incarnation 2 is on record"},
	{"a process in a sandbox that is gone", early(func(p *place) {
		edit(p, "agent-desired", "helper", &storev1.AgentDesired{}, func(d *storev1.AgentDesired) { d.SandboxId = "gone" })
	}), "I20 agent helper: it is AGENT_STATE_BUSY, and its sandbox \"gone\" is not live"},
	{"no position", early(func(p *place) { delete(p.db["agent-position"], "helper") }), "I21 agent helper: its output was read from incarnation 0, but the newest is 1"},
	{"no event at all", early(func(p *place) {
		delete(p.db, "agent-events:helper")
		edit(p, "agent-status", "helper", &storev1.AgentStatus{}, func(s *storev1.AgentStatus) { s.Events, s.EventBytes = 0, 0 })
	}), "I22 agent helper: there are 0 events up to 0, and counted are 0 up to 3"},
	{"read beyond the end", early(func(p *place) {
		edit(p, "agent-position", "helper", &storev1.AgentPosition{}, func(s *storev1.AgentPosition) { s.StdoutOffset = 7 })
	}), "I21 agent helper: its output was read up to byte 7, and the log has 6"},
	{"put beyond the end", early(func(p *place) {
		edit(p, "agent-prompts:helper", numKey(1), &storev1.AgentPrompt{}, func(s *storev1.AgentPrompt) { s.InboxOffset = 99 })
	}), "I21 agent helper: prompt 1 was written at byte 99 of its inbox, which has 6"},
	{"an outbox read beyond its end", early(func(p *place) {
		edit(p, "agent-position", "helper", &storev1.AgentPosition{}, func(s *storev1.AgentPosition) { s.OutboxOffset = 1 })
	}), "I21 agent helper: its outbox was read up to byte 1, and it has 0"},
	{"a gap in the transitions", early(func(p *place) { delete(p.db["agent-transitions:helper"], numKey(2)) }), "I22 agent helper: transition 3 is at number 3, and 2 is next"},
	{"an illegal transition", early(func(p *place) {
		edit(p, "agent-transitions:helper", numKey(2), &agboxv1.AgentTransition{}, func(tr *agboxv1.AgentTransition) { tr.To = agentBusy })
	}), "I22 agent helper: transition 2 leads from AGENT_STATE_STARTING to AGENT_STATE_BUSY"},
	{"transitions that lead elsewhere", early(func(p *place) { delete(p.db["agent-transitions:helper"], numKey(3)) }), "I22 agent helper: its transitions end with number 2"},
	{"an event less than counted", early(func(p *place) { delete(p.db["agent-events:helper"], numKey(2)) }), "I22 agent helper: there are 2 events up to 3, and counted are 3 up to 3"},
	{"a prompt that its ID does not find", early(func(p *place) { delete(p.db["agent-prompt-ids:helper"], "p1") }), "I22 agent helper: prompt \"p1\" is number 1 of 1, and 0 by its ID"},
}

// TestEveryPlantedViolationIsFound changes one thing in a sound site, which the report must name. Each invariant has a row.
func TestEveryPlantedViolationIsFound(t *testing.T) {
	found := map[string]bool{}
	for _, rows := range [][]planted{databaseViolations, fileViolations, worldViolations, packetViolations, agentViolations} {
		for _, row := range rows {
			t.Run(row.name, func(t *testing.T) {
				p := sound(t)
				row.plant(p)
				r := p.run()
				for _, f := range r.Violations {
					if strings.HasPrefix(f.String(), row.want) {
						found[f.Invariant] = true
						return
					}
				}
				var b strings.Builder
				r.Write(&b)
				t.Errorf("%s is not in\n%s", row.want, b.String())
			})
		}
	}
	for _, id := range []string{"I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I12", "I13", "I14", "I15", "I16", "I17", "I18",
		"I19", "I20", "I21", "I22", "I23", "I24", "I25"} {
		if !found[id] {
			t.Errorf("no planted violation of %s was found", id)
		}
	}
}

// TestAVolumeWithoutASandboxIsListed: it is kept for the next sandbox of its name, so it is no orphan.
func TestAVolumeWithoutASandboxIsListed(t *testing.T) {
	p := sound(t)
	p.volume("nobody")
	p.volume("web", p.one("web", "primary"))
	p.mirror()
	r := p.run()
	if !r.OK() || len(r.Warnings) != 1 || !strings.HasPrefix(r.Warnings[0].String(), "I23 volume nobody/data: no sandbox has the name") || r.Counts["volumes"] != 2 {
		t.Errorf("%+v", r)
	}
}

// TestLegalStatesAreNoViolations: unusual states that are legal.
func TestLegalStatesAreNoViolations(t *testing.T) {
	for _, row := range []planted{
		{"exec events dropped by the bound", early(func(p *place) {
			delete(p.db["events:web"], numKey(4))
			delete(p.db["events:web"], numKey(5))
			p.put("sandbox-trimmed", "web", num(5))
		}), ""},
		{"a rebuilt record", early(func(p *place) {
			delete(p.db["events:still"], numKey(1))
			delete(p.db["events:still"], numKey(2))
			delete(p.db["events:still"], numKey(3))
			p.editEvent("still", 4, func(e *agboxv1.SandboxEvent) { e.EventType = eventRebuilt })
		}), ""},
		{"output dropped at the limit", early(func(p *place) {
			var b bytes.Buffer
			_ = stream.Write(&b, "led-1", 50, nil)
			log := slices.Concat(b.Bytes()[:1000], []byte("\n[agbox: output limit of 1000 bytes reached; what follows was dropped]\n"))
			p.files["logs/web/led-1.stdout.log"] = log
			p.journal("web", journal{ExecID: "led-1", State: "ended", StartedAt: 10, EndedAt: 20, StdoutBytes: int64(len(log)), StdoutDropped: 5})
			edit(p, "exec-status:web", "led-1", &storev1.ExecEnd{}, func(e *storev1.ExecEnd) { e.StdoutDroppedBytes = 5 })
		}), ""},
		{"an exec that was closed on a full disk", early(func(p *place) {
			p.files["logs/web/led-1.journal"] = nil
			p.ledger = ""
			edit(p, "exec-status:web", "led-1", &storev1.ExecEnd{}, func(e *storev1.ExecEnd) { e.State, e.StartedAt, e.EndedAt = 4, 0, 0 })
			p.editEvent("web", 5, func(e *agboxv1.SandboxEvent) {
				e.EventType, e.GetExec().ExecState = eventCancelled, agboxv1.ExecState_EXEC_STATE_CANCELLED
			})
		}), ""},
		{"a journal that a power failure took", early(func(p *place) {
			delete(p.files, "logs/web/led-1.journal")
			edit(p, "exec-desired:web", "led-1", &storev1.ExecDesired{}, func(d *storev1.ExecDesired) { d.BootId = "an earlier one" })
		}), ""},
		{"a withdrawn failure", early(func(p *place) {
			e := &agboxv1.SandboxEvent{EventId: "died-4", Sequence: 4, SandboxId: "died", EventType: eventRecovered, SandboxState: ready, OccurredAt: timestamppb.Now()}
			p.put("events:died", numKey(4), p.message(e))
			p.put("sandbox-state", "died", num(4))
			p.one("died", "primary").State = "running"
		}), ""},
		{"what was deleted after a failure and is left to an operator", early(func(p *place) {
			p.put("sandbox-unswept", "gone", num(1))
			p.container("gone", "primary", "", "running")
		}), ""},
		{"a stop under way", early(func(p *place) {
			edit(p, "sandbox-desired", "web", &storev1.Desired{}, func(d *storev1.Desired) { d.RunState = wantStop })
			p.one("web", "primary").State = "exited"
		}), ""},
		{"a sandbox that is being purged", early(func(p *place) {
			for _, bucket := range []string{"sandbox-config", "sandbox-desired", "sandbox-state"} {
				delete(p.db[bucket], "gone")
			}
		}), ""},
		{"objects while records are rebuilt", early(func(p *place) {
			p.put("meta", "rebuild", num(1))
			p.container("alien", "primary", "", "running")
		}), ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := sound(t)
			row.plant(p)
			if r := p.run(); !r.OK() {
				var b strings.Builder
				r.Write(&b)
				t.Error(b.String())
			}
		})
	}
}

// TestWithoutADaemonDifferencesWithTheWorldAreWarnings: the next start repairs them. A broken record is still a violation.
func TestWithoutADaemonDifferencesWithTheWorldAreWarnings(t *testing.T) {
	p := sound(t).mirror()
	p.daemon = false
	p.one("web", "primary").State = "exited"
	if r := p.run(); !r.OK() || len(r.Warnings) == 0 {
		t.Errorf("%+v", r)
	}
	delete(p.db["events:web"], numKey(2))
	if r := p.run(); r.OK() {
		t.Error("the gap was not found")
	}
}

// A STOPPED sandbox whose container was removed without an event stays STOPPED until a resume: a warning, however long it persists.
func TestAStoppedSandboxWithoutAPrimaryIsAWarning(t *testing.T) {
	p := sound(t).mirror()
	p.world.containers = slices.DeleteFunc(p.world.containers, func(c container) bool { return c.name() == "agbox-primary-still" })
	r := p.run()
	if !r.OK() || len(r.Warnings) != 1 || r.Warnings[0].String() != "I15 sandbox still: it is STOPPED, and its primary container is gone" {
		t.Errorf("%+v", r)
	}
}

// TestADifferenceMustPersist: one that disappears, or whose object changes meanwhile, is no violation.
func TestADifferenceMustPersist(t *testing.T) {
	at := time.Unix(0, 0)
	seen := map[string]sighting{}
	look := func(after time.Duration, stamp string) (Report, bool) {
		at = at.Add(after)
		var s findings
		if stamp != "" {
			s.report(flux, "I14", "sandbox x", stamp, "it is dead")
		}
		return settle(s.list, seen, at, 10*time.Second, true)
	}
	for i, l := range []struct {
		after   time.Duration
		stamp   string
		ok      bool
		waiting bool
	}{
		{0, "1", true, true}, {9 * time.Second, "1", true, true}, // too short
		{2 * time.Second, "2", true, true}, {9 * time.Second, "2", true, true}, // the daemon changed the object
		{0, "", true, false}, {9 * time.Second, "2", true, true}, // it disappeared
		{10 * time.Second, "2", false, false},
	} {
		if r, waiting := look(l.after, l.stamp); r.OK() != l.ok || waiting != l.waiting {
			t.Errorf("look %d: ok %t, waiting %t", i, r.OK(), waiting)
		}
	}
}
