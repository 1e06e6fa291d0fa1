package store

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"
)

// The schema, version 1. A test walks a file that has one of everything and compares it with testdata/schema.golden.
// Integers are 8 bytes, big-endian; messages are protobuf. A bucket appears on first use. Names are never reused.
//
//	├──meta
//	│  ├──schema          : <uint64>                       - see schema.go
//	│  ├──instance        : <agbox.store.v1.Instance>      - UUID, the label value on all our Docker objects
//	│  ├──engine-marker   : <int64 unix nanoseconds>       - when the daemon created the marker volume in the engine
//	│  ├──engine-identity : <agbox.store.v1.EngineIdentity> - where the engine keeps its containers
//	│  ├──rebuild         : <int64 unix nanoseconds>       - when this file replaced a lost one; removed once all records are
//	│  │                                                     rebuilt
//	│  ├──lineage         : <uint64>                       - random; names this file in the log beside it
//	│  ├──epoch           : <uint64>                       - starts of the daemon so far
//	│  ├──drain           : <agbox.store.v1.DrainRecord>   - during a drain
//	│  ├──gateway-secret  : <agbox.store.v1.GatewaySecret> - made once; tokens of gateways are derived from it
//	│  └──clock           : <agbox.store.v1.ClockRecord>   - the last recorded host clock; written at an event, and each 10 min
//	├──gateway-keys
//	│  └──*key id*        : <agbox.store.v1.GatewayKey>    - until it is revoked
//	├──template-builds
//	│  └──*build id*      : <agbox.store.v1.TemplateBuild> - until the template is deleted, or newer ones displace it
//	├──sandbox-ids
//	│  └──*sandbox id*    : <int64 unix nanoseconds>       - reserved forever; the time of creation
//	├──exec-ids
//	│  └──*exec id*       : <int64 unix nanoseconds>       - reserved forever
//	├──sandbox-config
//	│  └──*sandbox id*    : <agbox.v1.CreateSpec>          - final spec, written at accept
//	├──sandbox-desired
//	│  └──*sandbox id*    : <agbox.store.v1.Desired>       - intent
//	├──sandbox-names
//	│  └──*name*          : <agbox.store.v1.NameRef>       - held until the delete is requested
//	├──sandbox-state
//	│  └──*sandbox id*    : <uint64 sequence>              - first event of the current unbroken run of its state
//	├──sandbox-progress
//	│  └──*sandbox id*    : <agbox.store.v1.Progress>      - progress of the current run; none means empty
//	├──sandbox-trimmed
//	│  └──*sandbox id*    : <uint64 sequence>              - highest event that the history limit dropped; none means 0
//	├──sandbox-deleted-at
//	│  └──*sandbox id*    : <int64 unix nanoseconds>       - written with SANDBOX_DELETED; a purge removes it last
//	├──sandbox-unswept
//	│  └──*sandbox id*    : <int64 unix nanoseconds>       - sandboxes that cleanup_ttl deleted after a failure; their objects are
//	│                                                        reported and never swept, also after the purge
//	├──sandbox-given-up
//	│  └──*sandbox id*    : <agbox.store.v1.GivenUp>       - an operator's confirmation, until the verdict or the next observation
//	├──sandbox-unproven
//	│  └──*sandbox id*    : <int64 unix nanoseconds>       - rebuilt from a log that lost its end, so its newest changes may be
//	│                                                        missing. Hidden until the daemon has observed the engine
//	├──exec-refs
//	│  └──*exec id*       : <agbox.store.v1.ExecRef>       - until the sandbox is purged
//	├──events:*sandbox id*
//	│  └──*sequence*      : <agbox.v1.SandboxEvent>        - uint64 key; the newest one with a state is the state. No gap
//	│                                                        after sandbox-trimmed; up to it, exec events are missing,
//	│                                                        and all events before a SANDBOX_REHYDRATED
//	├──exec-config:*sandbox id*
//	│  └──*exec id*       : <agbox.v1.CreateExecRequest>
//	├──exec-desired:*sandbox id*
//	│  └──*exec id*       : <agbox.store.v1.ExecDesired>   - intent
//	├──exec-status:*sandbox id*
//	│  └──*exec id*       : <agbox.store.v1.ExecEnd>       - written once, with the terminal event
//	├──agent-ids
//	│  └──*agent id*      : <int64 unix nanoseconds>       - reserved forever; the time of creation
//	├──agent-config
//	│  └──*agent id*      : <agbox.v1.AgentSpec>           - final spec, written at accept
//	├──agent-desired
//	│  └──*agent id*      : <agbox.store.v1.AgentDesired>  - intent; its name is held until the delete is requested
//	├──agent-status
//	│  └──*agent id*      : <agbox.store.v1.AgentStatus>   - its recorded status
//	├──agent-position
//	│  └──*agent id*      : <agbox.store.v1.AgentPosition> - how far its newest incarnation's output was ingested; none: not at all
//	├──agent-prompts:*agent id*
//	│  └──*number*        : <agbox.store.v1.AgentPrompt>   - uint64 key: the order of the queue
//	├──agent-prompt-ids:*agent id*
//	│  └──*prompt id*     : <agbox.store.v1.AgentPromptRef> - as long as the agent
//	├──agent-transitions:*agent id*
//	│  └──*number*        : <agbox.v1.AgentTransition>     - uint64 key; the newest 1,000
//	└──agent-events:*agent id*
//	   └──*sequence*      : <agbox.v1.AgentEvent>          - uint64 key. Superseded snapshots are missing; events up to
//	                                                         truncated_through are about to be removed
const (
	bucketMeta      = "meta"
	bucketSandboxID = "sandbox-ids"
	bucketExecID    = "exec-ids"
	bucketConfig    = "sandbox-config"
	bucketDesired   = "sandbox-desired"
	bucketNames     = "sandbox-names"
	bucketState     = "sandbox-state"
	bucketProgress  = "sandbox-progress"
	bucketTrimmed   = "sandbox-trimmed"
	bucketDeletedAt = "sandbox-deleted-at"
	bucketUnswept   = "sandbox-unswept"
	bucketGivenUp   = "sandbox-given-up"
	bucketUnproven  = "sandbox-unproven"
	bucketExecRefs  = "exec-refs"

	bucketGatewayKeys    = "gateway-keys"
	bucketTemplateBuilds = "template-builds"

	bucketAgentID       = "agent-ids"
	bucketAgentConfig   = "agent-config"
	bucketAgentDesired  = "agent-desired"
	bucketAgentStatus   = "agent-status"
	bucketAgentPosition = "agent-position"

	prefixAgentPrompts     = "agent-prompts:"
	prefixAgentPromptIDs   = "agent-prompt-ids:"
	prefixAgentTransitions = "agent-transitions:"
	prefixAgentEvents      = "agent-events:"

	prefixEvents      = "events:"
	prefixExecConfig  = "exec-config:"
	prefixExecDesired = "exec-desired:"
	prefixExecStatus  = "exec-status:"

	keySchema         = "schema"
	keyInstance       = "instance"
	keyEngineMarker   = "engine-marker"
	keyEngineIdentity = "engine-identity"
	keyRebuild        = "rebuild"
	keyLineage        = "lineage"
	keyEpoch          = "epoch"
	keyDrain          = "drain"
	keyClock          = "clock"
	keyGatewaySecret  = "gateway-secret"
)

// maxIDBytes limits the identifiers that become keys and bucket names; bbolt's own limit is 32768.
const maxIDBytes = 1024

// eventFill is the fill share of event pages: events are appended in key order, so nearly full pages never split.
const eventFill = 0.95

func checkID(what, id string) error {
	if id == "" || len(id) > maxIDBytes {
		return fmt.Errorf("%s of %d bytes: %w", what, len(id), errdefs.ErrInvalidArgument)
	}
	return nil
}

func encodeInt(v uint64) []byte { return binary.BigEndian.AppendUint64(nil, v) }

// decodeInt reads a fixed-width integer. Errors: ErrNotFound when b is nil, ErrDataLoss when the width is wrong.
func decodeInt(b []byte) (uint64, error) {
	switch {
	case b == nil:
		return 0, fmt.Errorf("record is missing: %w", errdefs.ErrNotFound)
	case len(b) != 8:
		return 0, fmt.Errorf("integer of %d bytes: %w", len(b), errdefs.ErrDataLoss)
	}
	return binary.BigEndian.Uint64(b), nil
}

func encode(m proto.Message) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w: %w", m.ProtoReflect().Descriptor().Name(), err, errdefs.ErrInvalidArgument)
	}
	return b, nil
}

// decode reads a message. Errors: ErrNotFound when b is nil, ErrDataLoss when the bytes do not decode.
func decode(b []byte, m proto.Message) error {
	name := m.ProtoReflect().Descriptor().Name()
	if b == nil {
		return fmt.Errorf("%s is missing: %w", name, errdefs.ErrNotFound)
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return fmt.Errorf("decode %s: %w: %w", name, err, errdefs.ErrDataLoss)
	}
	return nil
}

// read reads a message. Errors: as decode; the message is then nil.
func read[M proto.Message](tx *bolt.Tx, bucket, key string) (M, error) {
	var none M
	m := newOf(none)
	if err := decode(get(tx, bucket, []byte(key)), m); err != nil {
		return none, err
	}
	return m, nil
}

// newOf returns an empty message of the type of m.
func newOf[M proto.Message](m M) M { return m.ProtoReflect().New().Interface().(M) }

// get returns the value of a key, or nil. The bytes are valid until the next write of the transaction.
func get(tx *bolt.Tx, bucket string, key []byte) []byte {
	b := tx.Bucket([]byte(bucket))
	if b == nil {
		return nil
	}
	return b.Get(key)
}

// isHistory reports whether a bucket holds the events of a sandbox or an agent.
func isHistory(bucket string) bool {
	return strings.HasPrefix(bucket, prefixEvents) || strings.HasPrefix(bucket, prefixAgentEvents)
}

func fillOf(bucket string) float64 {
	if isHistory(bucket) {
		return eventFill
	}
	return bolt.DefaultFillPercent
}
