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

func (r *records) agent(id string) *agent {
	a := r.agents[id]
	if a == nil {
		a = &agent{id: id, prompts: map[uint64]*storev1.AgentPrompt{}, promptIDs: map[string]*storev1.AgentPromptRef{}}
		r.agents[id] = a
	}
	return a
}

// bucket reads one bucket by the schema in store/buckets.go.
func (r *records) bucket(name string, b *bolt.Bucket) error {
	kind, owner, owned := strings.Cut(name, ":")
	if owned {
		kind += ":"
	}
	read := readers[kind]
	if read == nil {
		r.report(note, "I1", "bucket "+name, "", "this auditor does not check it")
		return nil
	}
	return b.ForEach(func(k, v []byte) error {
		if v == nil {
			r.bad("bucket "+name, "it contains a nested bucket")
			return nil
		}
		if owned && strings.HasPrefix(kind, "agent-") {
			r.agent(owner) // also for a record that does not decode: its agent may have no sandbox
		}
		read(r, owner, string(k), v)
		return nil
	})
}

// readFunc reads one record. owner is what follows the colon in the name of its bucket.
type readFunc func(r *records, owner, key string, v []byte)

// readers are by the name of the bucket, up to the colon if it has one. A reserved ID alone makes no sandbox, exec or agent.
var readers = map[string]readFunc{
	"meta": (*records).readMeta,

	"sandbox-ids":        number("sandbox ID", func(r *records, id string, _ uint64) { r.sandboxIDs[id] = true }),
	"sandbox-config":     message("spec of sandbox", func(r *records, _, id string, m *agboxv1.CreateSpec) { r.sandbox(id).spec = m }),
	"sandbox-desired":    message("intent of sandbox", func(r *records, _, id string, m *storev1.Desired) { r.sandbox(id).desired = m }),
	"sandbox-progress":   message("progress of sandbox", func(r *records, _, id string, m *storev1.Progress) { r.sandbox(id).progress = m }),
	"sandbox-names":      message("name", func(r *records, _, name string, m *storev1.NameRef) { r.names[name] = m.GetSandboxId() }),
	"sandbox-given-up":   message("confirmation of sandbox", func(*records, string, string, *storev1.GivenUp) {}),
	"sandbox-state":      number("state of sandbox", func(r *records, id string, n uint64) { r.sandbox(id).stateSeq = n }),
	"sandbox-trimmed":    number("trimmed events of sandbox", func(r *records, id string, n uint64) { r.sandbox(id).trimmed = n }),
	"sandbox-deleted-at": number("deletion of sandbox", func(r *records, id string, n uint64) { r.sandbox(id).deletedAt = max(1, int64(n)) }),
	"sandbox-unswept":    number("mark of unswept sandbox", func(r *records, id string, _ uint64) { r.unswept[id] = true }),
	"template-builds":    message("template build", func(*records, string, string, *storev1.TemplateBuild) {}),
	"gateway-keys":       message("key of a gateway", func(*records, string, string, *storev1.GatewayKey) {}),
	"sandbox-unproven":   func(r *records, _, id string, _ []byte) { r.hidden[id] = true },
	"events:": numbered("event of sandbox", func(r *records, id string, n uint64, m *agboxv1.SandboxEvent) {
		r.sandbox(id).events = append(r.sandbox(id).events, event{n, m})
	}),

	"exec-ids":      number("exec ID", func(r *records, id string, _ uint64) { r.execIDs[id] = true }),
	"exec-refs":     message("reference to exec", func(r *records, _, id string, m *storev1.ExecRef) { r.execRefs[id] = m.GetSandboxId() }),
	"exec-config:":  message("exec", func(r *records, sb, id string, m *agboxv1.CreateExecRequest) { r.sandbox(sb).exec(id).request = m }),
	"exec-desired:": message("intent of exec", func(r *records, sb, id string, m *storev1.ExecDesired) { r.sandbox(sb).exec(id).desired = m }),
	"exec-status:":  message("end of exec", func(r *records, sb, id string, m *storev1.ExecEnd) { r.sandbox(sb).exec(id).end = m }),

	"agent-ids":         number("agent ID", func(r *records, id string, _ uint64) { r.agentIDs[id] = true }),
	"agent-config":      message("spec of agent", func(r *records, _, id string, m *agboxv1.AgentSpec) { r.agent(id).spec = m }),
	"agent-desired":     message("intent of agent", func(r *records, _, id string, m *storev1.AgentDesired) { r.agent(id).desired = m }),
	"agent-status":      message("status of agent", func(r *records, _, id string, m *storev1.AgentStatus) { r.agent(id).status = m }),
	"agent-position":    message("position of agent", func(r *records, _, id string, m *storev1.AgentPosition) { r.agent(id).position = m }),
	"agent-prompt-ids:": message("prompt ID", func(r *records, a, id string, m *storev1.AgentPromptRef) { r.agent(a).promptIDs[id] = m }),
	"agent-prompts:":    numbered("prompt of agent", func(r *records, id string, n uint64, m *storev1.AgentPrompt) { r.agent(id).prompts[n] = m }),
	"agent-transitions:": numbered("transition of agent", func(r *records, id string, n uint64, m *agboxv1.AgentTransition) {
		r.agent(id).transitions = append(r.agent(id).transitions, keyed[*agboxv1.AgentTransition]{n, m})
	}),
	"agent-events:": numbered("event of agent", func(r *records, id string, n uint64, m *agboxv1.AgentEvent) {
		r.agent(id).events = append(r.agent(id).events, keyed[*agboxv1.AgentEvent]{n, m})
	}),
}

// message returns a reader of messages by ID: keep gets each that decodes.
func message[M any, P interface {
	*M
	proto.Message
}](what string, keep func(r *records, owner, id string, m P)) readFunc {
	return func(r *records, owner, id string, v []byte) {
		object := what + " " + id
		if owner != "" {
			object += " of " + owner
		}
		if m := P(new(M)); r.decode(object, v, m) {
			keep(r, owner, id, m)
		}
	}
}

// numbered returns a reader of an object's messages by number.
func numbered[M any, P interface {
	*M
	proto.Message
}](what string, keep func(r *records, id string, n uint64, m P)) readFunc {
	return func(r *records, id, key string, v []byte) {
		n, m := r.number("key of "+what+" "+id, key), P(new(M))
		if r.decode(fmt.Sprintf("%s %s, number %d", what, id, n), v, m) {
			keep(r, id, n, m)
		}
	}
}

// number returns a reader of fixed-width integers by ID.
func number(what string, keep func(r *records, id string, n uint64)) readFunc {
	return func(r *records, _, id string, v []byte) { keep(r, id, r.number(what+" "+id, string(v))) }
}

// decode decodes a message; a failure is a finding.
func (r *records) decode(object string, v []byte, m proto.Message) bool {
	if err := proto.Unmarshal(v, m); err != nil {
		r.bad(object, "the record does not decode: %v", err)
		return false
	}
	return true
}

// number decodes a fixed-width integer.
func (r *records) number(object, v string) uint64 {
	if len(v) != 8 {
		r.bad(object, "the integer has %d bytes", len(v))
		return 0
	}
	return binary.BigEndian.Uint64([]byte(v))
}

func (r *records) readMeta(_, key string, v []byte) {
	switch key {
	case "instance":
		r.decode("instance", v, r.instance)
	case "rebuild":
		r.rebuild = true
	}
}
