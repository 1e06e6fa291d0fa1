package audit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// records is the content of the database, in memory.
type records struct {
	instance *storev1.Instance
	rebuild  bool            // the records are being rebuilt
	hidden   map[string]bool // sandboxes that the rebuild has not looked up in the engine

	txid     uint64 // the newest transaction
	contents contents

	sandboxes map[string]*sandbox
	agents    map[string]*agent

	sandboxIDs, execIDs, agentIDs map[string]bool
	names, execRefs               map[string]string
	unswept                       map[string]bool // deleted after a failure: their objects are left to an operator

	findings // records that do not decode, and unknown buckets
}

type sandbox struct {
	id        string
	spec      *agboxv1.CreateSpec
	desired   *storev1.Desired
	progress  *storev1.Progress
	stateSeq  uint64
	trimmed   uint64
	deletedAt int64 // 0: not deleted
	events    []event
	execs     map[string]*execution
}

// event is one event and its key.
type event struct {
	key uint64
	*agboxv1.SandboxEvent
}

type execution struct {
	id      string
	request *agboxv1.CreateExecRequest
	desired *storev1.ExecDesired
	end     *storev1.ExecEnd
}

type agent struct {
	id       string
	spec     *agboxv1.AgentSpec
	desired  *storev1.AgentDesired
	status   *storev1.AgentStatus
	position *storev1.AgentPosition

	prompts     map[uint64]*storev1.AgentPrompt
	promptIDs   map[string]*storev1.AgentPromptRef
	transitions []keyed[*agboxv1.AgentTransition]
	events      []keyed[*agboxv1.AgentEvent]
}

type keyed[M any] struct {
	key uint64
	m   M
}

// instances returns the UUIDs that the store's objects may have.
func (r *records) instances() []string {
	var list []string
	for _, id := range append([]string{r.instance.GetUuid()}, r.instance.GetFormer()...) {
		if id != "" {
			list = append(list, id)
		}
	}
	return list
}

// state returns the state of the newest event with one.
func (sb *sandbox) state() (s agboxv1.SandboxState) {
	for _, ev := range sb.events {
		if ev.GetSandboxState() != 0 {
			s = ev.GetSandboxState()
		}
	}
	return s
}

func (sb *sandbox) last() uint64 {
	if len(sb.events) == 0 {
		return 0
	}
	return sb.events[len(sb.events)-1].key
}

// stamp changes with each recorded change of the sandbox.
func (sb *sandbox) stamp() string {
	return fmt.Sprintf("%d/%d", sb.desired.GetGeneration(), sb.last())
}

func (sb *sandbox) gone() bool { return sb.deletedAt != 0 }

// readRecords reads a copy of the database that no other process has open. Damage in it is a finding. Errors: the copy can't be
// opened, or is so damaged that reading it faults.
func readRecords(path string) (r *records, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // bbolt reads from a mapping
	defer func() {
		if p := recover(); p != nil {
			r, err = nil, fmt.Errorf("the database is damaged: %v", p)
		}
	}()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	r = &records{
		instance: &storev1.Instance{}, sandboxes: map[string]*sandbox{}, agents: map[string]*agent{},
		sandboxIDs: map[string]bool{}, execIDs: map[string]bool{}, agentIDs: map[string]bool{},
		names: map[string]string{}, execRefs: map[string]string{}, unswept: map[string]bool{}, hidden: map[string]bool{},
	}
	err = db.View(func(tx *bolt.Tx) error {
		for e := range tx.Check() { // the channel must be drained
			r.bad("the file", "its pages are inconsistent: %v", e)
		}
		if len(r.list) > 0 {
			return nil // records of a broken file prove nothing
		}
		r.txid = uint64(tx.ID())
		if r.contents, err = contentsOf(tx); err != nil {
			return err
		}
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error { return r.bucket(string(name), b) })
	})
	return r, err
}

func (r *records) bad(object, format string, args ...any) {
	r.report(hard, "I1", object, "", format, args...)
}

func (r *records) sandbox(id string) *sandbox {
	sb := r.sandboxes[id]
	if sb == nil {
		sb = &sandbox{id: id, execs: map[string]*execution{}}
		r.sandboxes[id] = sb
	}
	return sb
}

func (sb *sandbox) exec(id string) *execution {
	e := sb.execs[id]
	if e == nil {
		e = &execution{id: id}
		sb.execs[id] = e
	}
	return e
}

// bucket reads one bucket by the schema in store/buckets.go.
func (r *records) bucket(name string, b *bolt.Bucket) error {
	read, id := r.reader(name)
	if read == nil {
		r.report(note, "I1", "bucket "+name, "", "this auditor does not check it")
		return nil
	}
	return b.ForEach(func(k, v []byte) error {
		if v == nil {
			r.bad("bucket "+name, "it contains a nested bucket")
			return nil
		}
		read(id, k, v)
		return nil
	})
}

type readFunc func(id string, k, v []byte)

// reader returns the reader for the records of a bucket, and the ID of their owner.
func (r *records) reader(name string) (read readFunc, id string) {
	if kind, id, ok := strings.Cut(name, ":"); ok {
		readers := map[string]readFunc{
			"events": r.readEvent, "exec-config": r.readExecConfig, "exec-desired": r.readExecDesired, "exec-status": r.readExecEnd,
			"agent-prompts": r.readPrompt, "agent-prompt-ids": r.readPromptID, "agent-transitions": r.readTransition,
			"agent-events": r.readAgentEvent,
		}
		return readers[kind], id
	}
	readers := map[string]readFunc{
		"meta":             r.readMeta,
		"sandbox-ids":      func(_ string, k, v []byte) { r.reserve(r.sandboxIDs, "sandbox", k, v) },
		"exec-ids":         func(_ string, k, v []byte) { r.reserve(r.execIDs, "exec", k, v) },
		"agent-ids":        r.readAgentID,
		"sandbox-names":    r.readName,
		"exec-refs":        r.readExecRef,
		"sandbox-config":   func(_ string, k, v []byte) { r.into(&r.sandbox(string(k)).spec, "spec of sandbox "+string(k), v) },
		"sandbox-desired":  r.readDesired,
		"sandbox-progress": r.readProgress,
		"sandbox-state": func(_ string, k, v []byte) {
			r.sandbox(string(k)).stateSeq = r.number("state of sandbox "+string(k), v)
		},
		"sandbox-trimmed": func(_ string, k, v []byte) {
			r.sandbox(string(k)).trimmed = r.number("trimmed events of sandbox "+string(k), v)
		},
		"sandbox-deleted-at": func(_ string, k, v []byte) {
			r.sandbox(string(k)).deletedAt = max(1, int64(r.number("deletion of sandbox "+string(k), v)))
		},
		"sandbox-unswept": func(_ string, k, v []byte) {
			r.unswept[string(k)] = true
			r.number("mark of unswept sandbox "+string(k), v)
		},
		"sandbox-unproven": func(_ string, k, _ []byte) { r.hidden[string(k)] = true },
		"sandbox-given-up": func(_ string, k, v []byte) {
			r.decode("confirmation of sandbox "+string(k), v, &storev1.GivenUp{})
		},
		"agent-config":   r.readAgentConfig,
		"agent-desired":  r.readAgentDesired,
		"agent-status":   r.readAgentStatus,
		"agent-position": r.readAgentPosition,
	}
	return readers[name], ""
}

// decode decodes a message; a failure is a finding.
func (r *records) decode(object string, v []byte, m proto.Message) bool {
	if err := proto.Unmarshal(v, m); err != nil {
		r.bad(object, "the record does not decode: %v", err)
		return false
	}
	return true
}

func (r *records) into(to **agboxv1.CreateSpec, object string, v []byte) {
	m := &agboxv1.CreateSpec{}
	if r.decode(object, v, m) {
		*to = m
	}
}

// number decodes a fixed-width integer.
func (r *records) number(object string, v []byte) uint64 {
	if len(v) != 8 {
		r.bad(object, "the integer has %d bytes", len(v))
		return 0
	}
	return binary.BigEndian.Uint64(v)
}

func (r *records) reserve(ids map[string]bool, kind string, k, v []byte) {
	ids[string(k)] = true
	r.number(kind+" ID "+string(k), v)
}

func (r *records) readMeta(_ string, k, v []byte) {
	switch string(k) {
	case "instance":
		r.decode("instance", v, r.instance)
	case "rebuild":
		r.rebuild = true
	}
}

func (r *records) readName(_ string, k, v []byte) {
	var ref storev1.NameRef
	if r.decode("name "+string(k), v, &ref) {
		r.names[string(k)] = ref.GetSandboxId()
	}
}

func (r *records) readExecRef(_ string, k, v []byte) {
	var ref storev1.ExecRef
	if r.decode("reference to exec "+string(k), v, &ref) {
		r.execRefs[string(k)] = ref.GetSandboxId()
	}
}

func (r *records) readDesired(_ string, k, v []byte) {
	m := &storev1.Desired{}
	if r.decode("intent of sandbox "+string(k), v, m) {
		r.sandbox(string(k)).desired = m
	}
}

func (r *records) readProgress(_ string, k, v []byte) {
	m := &storev1.Progress{}
	if r.decode("progress of sandbox "+string(k), v, m) {
		r.sandbox(string(k)).progress = m
	}
}

func (r *records) readEvent(id string, k, v []byte) {
	m := &agboxv1.SandboxEvent{}
	seq := r.number("key of an event of sandbox "+id, k)
	if r.decode(fmt.Sprintf("event %d of sandbox %s", seq, id), v, m) {
		sb := r.sandbox(id)
		sb.events = append(sb.events, event{seq, m})
	}
}

func (r *records) readExecConfig(id string, k, v []byte) {
	m := &agboxv1.CreateExecRequest{}
	if r.decode("exec "+string(k), v, m) {
		r.sandbox(id).exec(string(k)).request = m
	}
}

func (r *records) readExecDesired(id string, k, v []byte) {
	m := &storev1.ExecDesired{}
	if r.decode("intent of exec "+string(k), v, m) {
		r.sandbox(id).exec(string(k)).desired = m
	}
}

func (r *records) readExecEnd(id string, k, v []byte) {
	m := &storev1.ExecEnd{}
	if r.decode("end of exec "+string(k), v, m) {
		r.sandbox(id).exec(string(k)).end = m
	}
}

func (r *records) agent(id string) *agent {
	a := r.agents[id]
	if a == nil {
		a = &agent{id: id, prompts: map[uint64]*storev1.AgentPrompt{}, promptIDs: map[string]*storev1.AgentPromptRef{}}
		r.agents[id] = a
	}
	return a
}

// readAgentID: a reservation alone makes no agent.
func (r *records) readAgentID(_ string, k, v []byte) { r.reserve(r.agentIDs, "agent", k, v) }

func (r *records) readAgentConfig(_ string, k, v []byte) {
	a, m := r.agent(string(k)), &agboxv1.AgentSpec{}
	if r.decode("spec of agent "+a.id, v, m) {
		a.spec = m
	}
}

func (r *records) readAgentDesired(_ string, k, v []byte) {
	a, m := r.agent(string(k)), &storev1.AgentDesired{}
	if r.decode("intent of agent "+a.id, v, m) {
		a.desired = m
	}
}

func (r *records) readAgentStatus(_ string, k, v []byte) {
	a, m := r.agent(string(k)), &storev1.AgentStatus{}
	if r.decode("status of agent "+a.id, v, m) {
		a.status = m
	}
}

func (r *records) readAgentPosition(_ string, k, v []byte) {
	a, m := r.agent(string(k)), &storev1.AgentPosition{}
	if r.decode("position of agent "+a.id, v, m) {
		a.position = m
	}
}

func (r *records) readPrompt(id string, k, v []byte) {
	a, m := r.agent(id), &storev1.AgentPrompt{}
	if r.decode("a prompt of agent "+id, v, m) {
		a.prompts[r.number("key of a prompt of agent "+id, k)] = m
	}
}

func (r *records) readPromptID(id string, k, v []byte) {
	a, m := r.agent(id), &storev1.AgentPromptRef{}
	if r.decode("prompt ID "+string(k)+" of agent "+id, v, m) {
		a.promptIDs[string(k)] = m
	}
}

func (r *records) readTransition(id string, k, v []byte) {
	a, m := r.agent(id), &agboxv1.AgentTransition{}
	if r.decode("a transition of agent "+id, v, m) {
		a.transitions = append(a.transitions, keyed[*agboxv1.AgentTransition]{r.number("key of a transition of agent "+id, k), m})
	}
}

func (r *records) readAgentEvent(id string, k, v []byte) {
	a, m := r.agent(id), &agboxv1.AgentEvent{}
	if r.decode("an event of agent "+id, v, m) {
		a.events = append(a.events, keyed[*agboxv1.AgentEvent]{r.number("key of an event of agent "+id, k), m})
	}
}
