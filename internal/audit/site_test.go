package audit

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/audit/stream"
)

const (
	instance = "0b8a3c52-0000-4000-8000-000000000001"
	nonce    = "0123456789abcdef0123456789abcdef"
)

// place is a complete site before it is written: a test changes one thing in it.
type place struct {
	t      testing.TB
	db     map[string]map[string][]byte
	world  world
	rules  *packets
	files  map[string][]byte // by path below the root
	held   []string          // lock files to hold
	ledger string
	daemon bool
}

func (p *place) put(bucket, key string, v []byte) {
	if p.db[bucket] == nil {
		p.db[bucket] = map[string][]byte{}
	}
	p.db[bucket][key] = v
}

func (p *place) message(m proto.Message) []byte {
	p.t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		p.t.Fatal(err)
	}
	return b
}

func num(n uint64) []byte    { return binary.BigEndian.AppendUint64(nil, n) }
func numKey(n uint64) string { return string(num(n)) }

// edit changes a message in the database.
func edit[M proto.Message](p *place, bucket, key string, m M, fn func(M)) {
	p.t.Helper()
	have, ok := p.db[bucket][key]
	if !ok {
		p.t.Fatalf("no record %q in %s", key, bucket)
	}
	if err := proto.Unmarshal(have, m); err != nil {
		p.t.Fatal(err)
	}
	fn(m)
	p.put(bucket, key, p.message(m))
}

// editEvent changes an event of a sandbox.
func (p *place) editEvent(id string, seq uint64, fn func(*agboxv1.SandboxEvent)) {
	p.t.Helper()
	edit(p, "events:"+id, numKey(seq), &agboxv1.SandboxEvent{}, fn)
}

// step is one event of a history.
type step struct {
	typ   agboxv1.EventType
	state agboxv1.SandboxState
	exec  *agboxv1.ExecEventDetails
	code  string
}

func (p *place) history(id string, steps ...step) {
	var run uint64
	var at agboxv1.SandboxState
	for i, s := range steps {
		seq := uint64(i + 1)
		ev := &agboxv1.SandboxEvent{
			EventId: fmt.Sprintf("%s-%d", id, seq), Sequence: seq, SandboxId: id, EventType: s.typ, SandboxState: s.state,
			OccurredAt: timestamppb.New(time.Unix(1_700_000_000+int64(seq), 0)),
		}
		if s.exec != nil {
			ev.Details = &agboxv1.SandboxEvent_Exec{Exec: s.exec}
		} else if s.code != "" {
			ev.Details = &agboxv1.SandboxEvent_SandboxPhase{SandboxPhase: &agboxv1.SandboxPhaseDetails{ErrorCode: s.code}}
		}
		p.put("events:"+id, numKey(seq), p.message(ev))
		if s.state != 0 && s.state != at {
			at, run = s.state, seq
		}
	}
	p.put("sandbox-state", id, num(run))
}

func (p *place) box(id, name string, want storev1.RunState, spec *agboxv1.CreateSpec) {
	p.put("sandbox-ids", id, num(1))
	p.put("sandbox-config", id, p.message(spec))
	p.put("sandbox-desired", id, p.message(&storev1.Desired{RunState: want, Generation: 1, Name: name}))
	if name != "" && want != wantDelete {
		p.put("sandbox-names", name, p.message(&storev1.NameRef{SandboxId: id}))
	}
}

func (p *place) execRecord(sandbox, id string, started uint64, end *storev1.ExecEnd) {
	p.put("exec-ids", id, num(1))
	p.put("exec-refs", id, p.message(&storev1.ExecRef{SandboxId: sandbox}))
	p.put("exec-config:"+sandbox, id, p.message(&agboxv1.CreateExecRequest{SandboxId: sandbox, ExecId: id, Command: []string{"true"}}))
	p.put("exec-desired:"+sandbox, id, p.message(&storev1.ExecDesired{Nonce: nonce, CreatedAt: 1, StartedSequence: started}))
	if end != nil {
		p.put("exec-status:"+sandbox, id, p.message(end))
	}
}

func (p *place) journal(sandbox string, j journal) {
	j.Version, j.Nonce = 1, nonce
	b, err := json.Marshal(j)
	if err != nil {
		p.t.Fatal(err)
	}
	p.files["logs/"+sandbox+"/"+j.ExecID+suffixJournal] = b
}

func label(id, component, service string) map[string]string {
	return map[string]string{labelInstance: instance, labelSandbox: id, labelComponent: component, labelService: service}
}

func (p *place) container(id, component, service, state string) *container {
	c := container{ID: id + component + service + "0123456789ab", Names: []string{"/agbox-" + component + "-" + id}, Labels: label(id, component, service), State: state}
	c.Settings.Networks = map[string]struct {
		NetworkID string `json:"NetworkID"`
	}{"n": {"net-" + id}}
	p.world.containers = append(p.world.containers, c)
	return &p.world.containers[len(p.world.containers)-1]
}

func (p *place) network(id string) {
	p.world.networks = append(p.world.networks, network{ID: "net-" + id, Name: "agbox-net-" + id, Labels: label(id, "network", "")})
}

// root adds a volume that is a part of a sandbox's read-only root, and mounts it in containers.
func (p *place) root(id string, users ...*container) {
	v := volume{Name: "0123456789abcdef-" + id, Labels: label(id, "root", "")}
	p.world.roots = append(p.world.roots, v)
	for _, c := range users {
		c.Mounts = append(c.Mounts, mount{"volume", v.Name})
	}
}

// confine gives a sandbox a mode without a policy of its own, and what the kernel has of it.
func (p *place) confine(id, mode string) {
	p.t.Helper()
	edit(p, "sandbox-desired", id, &storev1.Desired{}, func(d *storev1.Desired) { d.Confinement = &storev1.Confinement{NetworkMode: mode} })
	bridge := bridgeOf("net-" + id)
	p.rules.interfaces[bridge] = true
	for list, closed := range listsNeeded[mode] {
		c := chain{rules: 3}
		if closed {
			c.last = "denied"
		}
		p.rules.chains[list+"-"+bridge] = c
		p.rules.jumps[list][bridge] = list + "-" + bridge
	}
}

// volume adds a volume of a sandbox's name, and mounts it in containers.
func (p *place) volume(sandboxName string, users ...*container) {
	v := volume{Name: "agbox-vol-" + sandboxName, Labels: map[string]string{
		labelInstance: instance, labelComponent: "volume", labelSandboxName: sandboxName, labelVolume: "data",
	}}
	p.world.volumes = append(p.world.volumes, v)
	for _, c := range users {
		c.Mounts = append(c.Mounts, mount{"volume", v.Name})
	}
}

// sound returns a site without violations: one sandbox in each state, execs of each kind, and an agent.
func sound(t testing.TB) *place {
	p := &place{t: t, db: map[string]map[string][]byte{}, files: map[string][]byte{}, daemon: true}
	p.rules = &packets{
		interfaces: map[string]bool{}, called: map[string]bool{}, jumps: map[string]map[string]string{},
		chains: map[string]chain{"denied": {rules: 9, last: dropped}},
	}
	for list := range hookOf {
		p.rules.called[list], p.rules.jumps[list] = true, map[string]string{}
	}
	p.put("meta", "schema", num(1))
	p.put("meta", "instance", p.message(&storev1.Instance{Uuid: instance}))
	plain := &agboxv1.CreateSpec{Image: "i"}
	p.web()
	p.confine("web", modeInternet)
	p.box("still", "", wantStop, plain)
	p.history("still", step{typ: agboxv1.EventType_SANDBOX_ACCEPTED, state: pending}, step{typ: agboxv1.EventType_SANDBOX_READY, state: ready},
		step{typ: agboxv1.EventType_SANDBOX_STOP_REQUESTED, state: ready}, step{typ: agboxv1.EventType_SANDBOX_STOPPED, state: stopped})
	p.container("still", "primary", "", "exited")
	p.network("still")
	p.box("cold", "", wantPause, &agboxv1.CreateSpec{Image: "i", Security: &agboxv1.SecuritySpec{ReadOnlyRoot: true}})
	p.history("cold", step{typ: agboxv1.EventType_SANDBOX_ACCEPTED, state: pending}, step{typ: agboxv1.EventType_SANDBOX_READY, state: ready},
		step{typ: agboxv1.EventType_SANDBOX_PAUSE_REQUESTED, state: ready}, step{typ: agboxv1.EventType_SANDBOX_PAUSED, state: paused})
	p.root("cold", p.container("cold", "primary", "", "paused"))
	p.network("cold")
	p.confine("cold", modeNone)
	p.box("bad", "", wantRun, plain)
	p.history("bad", step{typ: agboxv1.EventType_SANDBOX_ACCEPTED, state: pending},
		step{typ: agboxv1.EventType_SANDBOX_FAILED, state: failed, code: "SANDBOX_CREATE_FAILED"})
	p.box("died", "", wantRun, plain)
	p.history("died", step{typ: agboxv1.EventType_SANDBOX_ACCEPTED, state: pending}, step{typ: agboxv1.EventType_SANDBOX_READY, state: ready},
		step{typ: agboxv1.EventType_SANDBOX_FAILED, state: failed, code: "CONTAINER_DIED"})
	p.container("died", "primary", "", "exited")
	p.network("died")
	p.box("gone", "was", wantDelete, plain)
	p.history("gone", step{typ: agboxv1.EventType_SANDBOX_ACCEPTED, state: pending},
		step{typ: agboxv1.EventType_SANDBOX_DELETE_REQUESTED, state: deleting}, step{typ: agboxv1.EventType_SANDBOX_DELETED, state: deleted})
	p.put("sandbox-deleted-at", "gone", num(2))
	p.put("sandbox-ids", "purged", num(1))
	return p
}

// web is the READY one: a service, an exec that ended with a stream as its log and one that lives, and an agent.
func (p *place) web() {
	p.box("web", "web", wantRun, &agboxv1.CreateSpec{Image: "i", OptionalServices: []*agboxv1.ServiceSpec{{Name: "db", Image: "i"}}})
	finished := &agboxv1.ExecEventDetails{ExecId: "led-1", ExecState: agboxv1.ExecState_EXEC_STATE_FINISHED}
	started := func(id string) step { return step{typ: eventStarted, exec: &agboxv1.ExecEventDetails{ExecId: id}} }
	p.history("web", step{typ: agboxv1.EventType_SANDBOX_ACCEPTED, state: pending}, step{typ: agboxv1.EventType_SANDBOX_PREPARING, state: pending},
		step{typ: agboxv1.EventType_SANDBOX_READY, state: ready}, started("led-1"), step{typ: eventFinished, exec: finished},
		started("act-1"), started("helper.1"))
	p.put("sandbox-progress", "web", p.message(&storev1.Progress{PrimaryStarted: true,
		Services: map[string]*storev1.ServiceProgress{"db": {Mark: storev1.ServiceMark_SERVICE_MARK_READY}}}))
	p.container("web", "primary", "", "running")
	p.container("web", "service", "db", "running")
	p.network("web")

	var out bytes.Buffer
	if err := stream.Write(&out, "led-1", 50, nil); err != nil {
		p.t.Fatal(err)
	}
	p.execRecord("web", "led-1", 4, &storev1.ExecEnd{State: 2, Sequence: 5, StartedAt: 10, EndedAt: 20})
	p.journal("web", journal{ExecID: "led-1", State: "ended", StartedAt: 10, EndedAt: 20, StdoutBytes: int64(out.Len())})
	p.files["logs/web/led-1.stdout.log"] = out.Bytes()
	p.files["logs/web/led-1.stderr.log"] = nil
	p.files["logs/web/led-1.lock"] = nil
	p.ledger = "start led-1\nend led-1 0\n"
	for _, id := range []string{"act-1", "helper.1"} {
		seq := uint64(6)
		if id == "helper.1" {
			seq = 7
		}
		p.execRecord("web", id, seq, nil)
		p.journal("web", journal{ExecID: id, State: "started", StartedAt: 10})
		p.files["logs/web/"+id+".lock"] = nil
		p.held = append(p.held, "logs/web/"+id+".lock")
	}
	p.files["logs/web/helper.1.stdout.log"] = []byte("ready\n")
	p.files["s/"+runName("web")+"/ctl/exec/helper.1.inbox"] = []byte("hello\n")
	p.helper()
}

// helper is an agent that is processing its first prompt.
func (p *place) helper() {
	p.put("agent-ids", "helper", num(1))
	p.put("agent-config", "helper", p.message(&agboxv1.AgentSpec{SandboxId: "web", Command: []string{"x"}}))
	p.put("agent-desired", "helper", p.message(&storev1.AgentDesired{Run: storev1.AgentRun_AGENT_RUN_RUN, Generation: 1, Name: "helper", SandboxId: "web"}))
	p.put("agent-position", "helper", p.message(&storev1.AgentPosition{Incarnation: 1, StdoutOffset: 6}))
	p.put("agent-prompts:helper", numKey(1), p.message(&storev1.AgentPrompt{PromptId: "p1", Text: "hello", Incarnation: 1, Claims: 1}))
	p.put("agent-prompt-ids:helper", "p1", p.message(&storev1.AgentPromptRef{Number: 1}))
	at := []agboxv1.AgentState{agentPending, agentStarting, agentIdle, agentBusy}
	for n := uint64(1); n < 4; n++ {
		tr := &agboxv1.AgentTransition{Number: n, From: at[n-1], To: at[n], Trigger: agboxv1.AgentTrigger(n)}
		p.put("agent-transitions:helper", numKey(n), p.message(tr))
		p.put("agent-events:helper", numKey(n), p.message(&agboxv1.AgentEvent{Sequence: n, AgentId: "helper", Incarnation: 1,
			OccurredAt: timestamppb.New(time.Unix(1_700_000_000, 0))}))
	}
	p.put("agent-status", "helper", p.message(&storev1.AgentStatus{State: agentBusy, Version: 9, Incarnation: 1, PromptId: "p1",
		Transitions: 3, LastSequence: 3, Events: 3, Prompts: 1}))
}

func frame(kind byte, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{'A', 'G', 'L', kind}, uint32(len(payload)))
	b = binary.BigEndian.AppendUint32(b, crc32.Update(crc32.Checksum(b, castagnoli), castagnoli, payload))
	return append(b, payload...)
}

// fileTxid is the transaction of a file that writeDB has created.
const fileTxid = 2

const (
	theSnapshot = "log/snapshot-00000003"
	theSegment  = "log/segment-00000003"
)

// mirror adds the log of the records. A test that changes the log, or only the records, calls it first.
func (p *place) mirror() *place {
	head := binary.AppendUvarint(append([]byte{1}, make([]byte, 8)...), fileTxid-1)
	file := frame('P', head)
	for bucket := range p.db {
		file = append(file, frame('D', operation(3, bucket))...)
	}
	p.files[theSnapshot] = append(file, frame('Z', []byte{0})...)
	txn := binary.AppendUvarint(binary.AppendUvarint(nil, fileTxid-1), fileTxid)
	for bucket, records := range p.db {
		for k, v := range records {
			txn = append(txn, operation(1, bucket, k, string(v))...)
		}
	}
	p.files[theSegment] = slices.Concat(frame('S', head), frame('T', txn), frame('E', make([]byte, 8)))
	return p
}

func operation(kind byte, words ...string) []byte {
	b := []byte{kind}
	for _, w := range words {
		b = append(binary.AppendUvarint(b, uint64(len(w))), w...)
	}
	return b
}

func (p *place) writeDB(path string) {
	p.t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true})
	if err != nil {
		p.t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for name, records := range p.db {
			b, err := tx.CreateBucketIfNotExists([]byte(name))
			if err != nil {
				return err
			}
			for k, v := range records {
				if err := b.Put([]byte(k), v); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		p.t.Fatal(err)
	}
}

// run writes the place and audits it.
func (p *place) run() Report {
	p.t.Helper()
	root := p.t.TempDir()
	for name, data := range p.files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			p.t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
	for _, name := range p.held {
		f, err := os.Open(filepath.Join(root, name))
		if err != nil {
			p.t.Fatal(err)
		}
		defer f.Close()
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			p.t.Fatal(err)
		}
	}
	ledger := filepath.Join(root, "ledger")
	if err := os.MkdirAll(ledger, 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(ledger, "web"), []byte(p.ledger), 0o600); err != nil {
		p.t.Fatal(err)
	}
	db := filepath.Join(root, "ids.db")
	p.writeDB(db)
	site := Site{
		RunRoot: filepath.Join(root, "s"), LogRoot: filepath.Join(root, "logs"), TxLog: filepath.Join(root, "log"),
		Engine: p.serveEngine(), Ledger: ledger, ScratchDir: root, packets: func() *packets { return p.rules },
	}
	source := FromFile(db)
	running := func(ctx context.Context, f *os.File) (bool, error) {
		_, err := source(ctx, f)
		return p.daemon, err
	}
	r, err := Run(context.Background(), site, running, Options{Patience: 30 * time.Millisecond, Interval: 10 * time.Millisecond})
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

// serveEngine answers as an engine does, and returns an error for requests that the auditor must not send.
func (p *place) serveEngine() string {
	p.t.Helper()
	dir, err := os.MkdirTemp("", "audit")
	if err != nil {
		p.t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "e.sock"))
	if err != nil {
		p.t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		want := fmt.Sprintf(`{"label":["%s=%s"]}`, labelInstance, instance)
		if r.Method != http.MethodGet || r.URL.Query().Get("filters") != want {
			http.Error(w, "unexpected", http.StatusTeapot)
			return
		}
		var v any = p.world.networks
		switch r.URL.Path {
		case "/containers/json":
			v = p.world.containers
		case "/volumes":
			v = map[string]any{"Volumes": slices.Concat(p.world.volumes, p.world.roots)}
		}
		_ = json.NewEncoder(w).Encode(v)
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	p.t.Cleanup(func() { _ = srv.Close(); <-done; _ = os.RemoveAll(dir) })
	return "unix://" + filepath.Join(dir, "e.sock")
}
