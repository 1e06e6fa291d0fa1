package storetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Older writes a database as the daemon before agboxd did. Close it before it is adopted. It fails the test on any error.
type Older struct {
	testing.TB
	db *bolt.DB
	at time.Time
}

// NewOlder creates a database at path, whose first record is from the time at. Each event is a second later than the one before.
func NewOlder(t testing.TB, path string, at time.Time) *Older {
	t.Helper()
	o := &Older{TB: t, at: at}
	o.must(os.MkdirAll(filepath.Dir(path), 0o700))
	var err error
	o.db, err = bolt.Open(path, 0o600, &bolt.Options{Timeout: 10 * time.Second})
	o.must(err)
	return o
}

func (o *Older) must(err error) {
	o.Helper()
	if err != nil {
		o.Fatal(err)
	}
}

// Close ends the older daemon.
func (o *Older) Close() {
	o.Helper()
	o.must(o.db.Close())
}

// Put writes one record; the bucket appears. m is a proto.Message, a time, or bytes.
func (o *Older) Put(bucket, key string, m any) {
	o.Helper()
	var value []byte
	switch m := m.(type) {
	case proto.Message:
		var err error
		value, err = proto.Marshal(m)
		o.must(err)
	case time.Time:
		value = binary.BigEndian.AppendUint64(nil, uint64(m.UnixNano()))
	case []byte:
		value = m
	}
	o.must(o.db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte(bucket))
		if err != nil {
			return err
		}
		_, err = b.NextSequence() // agboxd's own files have none
		return errors.Join(err, b.Put([]byte(key), value))
	}))
}

// Sandbox reserves an ID, and records a spec and the events, which Sandbox numbers and dates.
func (o *Older) Sandbox(id string, spec *agboxv1.CreateSpec, events ...*agboxv1.SandboxEvent) {
	o.Helper()
	o.Put("sandbox-ids", id, o.at)
	o.Put("sandbox-config", id, spec)
	for i, ev := range events {
		o.Event(id, uint64(i+1), ev)
	}
}

// Event records one event of a sandbox.
func (o *Older) Event(id string, sequence uint64, ev *agboxv1.SandboxEvent) {
	o.Helper()
	o.at = o.at.Add(time.Second)
	ev = proto.CloneOf(ev)
	ev.SandboxId, ev.Sequence, ev.EventId, ev.OccurredAt = id, sequence, fmt.Sprintf("%s-%d", id, sequence), timestamppb.New(o.at)
	o.Put("events:"+id, string(binary.BigEndian.AppendUint64(nil, sequence)), ev)
}

// Exec reserves the ID of an exec and records its request.
func (o *Older) Exec(id, execID string, command ...string) {
	o.Helper()
	o.Put("exec-ids", execID, o.at)
	o.Put("exec-config:"+id, execID, &agboxv1.CreateExecRequest{SandboxId: id, Command: command})
}

// Phase returns an event of a sandbox, with the reason of a request or the code of a failure.
func Phase(typ agboxv1.EventType, state agboxv1.SandboxState, word string) *agboxv1.SandboxEvent {
	ev := &agboxv1.SandboxEvent{EventType: typ, SandboxState: state}
	switch {
	case word == "":
	case typ == agboxv1.EventType_SANDBOX_FAILED:
		ev.Details = &agboxv1.SandboxEvent_SandboxPhase{SandboxPhase: &agboxv1.SandboxPhaseDetails{ErrorCode: word, ErrorMessage: "it failed"}}
	case typ == agboxv1.EventType_SANDBOX_PREPARING:
		ev.Details = &agboxv1.SandboxEvent_SandboxPhase{SandboxPhase: &agboxv1.SandboxPhaseDetails{Phase: word}}
	default:
		ev.Details = &agboxv1.SandboxEvent_SandboxPhase{SandboxPhase: &agboxv1.SandboxPhaseDetails{Reason: word}}
	}
	return ev
}

// ExecEvent returns an event of an exec.
func ExecEvent(typ agboxv1.EventType, d *agboxv1.ExecEventDetails) *agboxv1.SandboxEvent {
	return &agboxv1.SandboxEvent{EventType: typ, Details: &agboxv1.SandboxEvent_Exec{Exec: d}}
}
