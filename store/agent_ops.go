package store

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// Where the records of an agent are. The numbers of the kinds are in files, so they never change.
var (
	agentSingles = map[storev1.AgentRecordKind]string{
		storev1.AgentRecordKind_AGENT_RECORD_KIND_ID:       bucketAgentID,
		storev1.AgentRecordKind_AGENT_RECORD_KIND_CONFIG:   bucketAgentConfig,
		storev1.AgentRecordKind_AGENT_RECORD_KIND_DESIRED:  bucketAgentDesired,
		storev1.AgentRecordKind_AGENT_RECORD_KIND_STATUS:   bucketAgentStatus,
		storev1.AgentRecordKind_AGENT_RECORD_KIND_POSITION: bucketAgentPosition,
	}
	agentLists = map[storev1.AgentRecordKind]string{
		storev1.AgentRecordKind_AGENT_RECORD_KIND_PROMPT:     prefixAgentPrompts,
		storev1.AgentRecordKind_AGENT_RECORD_KIND_PROMPT_ID:  prefixAgentPromptIDs,
		storev1.AgentRecordKind_AGENT_RECORD_KIND_TRANSITION: prefixAgentTransitions,
		storev1.AgentRecordKind_AGENT_RECORD_KIND_EVENT:      prefixAgentEvents,
	}
)

// ofAgent returns whose record o writes, and o in terms of the mirror, which shares its bytes; nil: no agent's. A bucket is
// dropped only when it is empty, so nothing is to be told of that.
func (o op) ofAgent() (id string, out *storev1.AgentOp) {
	if o.kind == opDropBucket || !strings.HasPrefix(o.bucket, "agent-") {
		return "", nil
	}
	out = &storev1.AgentOp{Value: o.value, Delete: o.kind == opDelete}
	for kind, bucket := range agentSingles {
		if o.bucket == bucket {
			out.Kind = kind
			return string(o.key), out
		}
	}
	for kind, prefix := range agentLists {
		if id, ok := strings.CutPrefix(o.bucket, prefix); ok {
			out.Kind, out.Key = kind, o.key
			return id, out
		}
	}
	return "", nil
}

// listOp is the other way, for kinds of which an agent has many. Errors: ErrDataLoss.
func listOp(id string, in *storev1.AgentOp) (op, error) {
	prefix, ok := agentLists[in.GetKind()]
	if !ok || len(in.GetKey()) == 0 {
		return op{}, fmt.Errorf("a record of kind %d with a key of %d bytes: %w", in.GetKind(), len(in.GetKey()), errdefs.ErrDataLoss)
	}
	if in.GetDelete() {
		return op{kind: opDelete, bucket: prefix + id, key: in.GetKey()}, nil
	}
	return op{opPut, prefix + id, in.GetKey(), in.GetValue()}, nil
}
