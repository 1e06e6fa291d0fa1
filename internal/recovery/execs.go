package recovery

import (
	"cmp"
	"slices"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/controller/execend"
	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// execOf builds the record of an exec from its files; nil for an internal one. While its request exists, its end was not
// recorded: the exec's reconciliation will inspect it and record its end, or its loss. The store sets the sequences.
func execOf(sandboxID string, t execjournal.Trace, now time.Time) *storev1.ExecRecord {
	if execid.Internal(t.ExecID) || validate.ExecID(t.ExecID) != nil && !isAgents(t) {
		return nil
	}
	r := &storev1.ExecRecord{
		ExecId: t.ExecID, Request: &agboxv1.CreateExecRequest{SandboxId: sandboxID, ExecId: t.ExecID},
		Desired: &storev1.ExecDesired{CreatedAt: now.UnixNano()},
	}
	if j := t.Journal; j != nil {
		r.Desired.Nonce = j.Nonce
		if at := earliest(j); at > 0 {
			r.Desired.CreatedAt = min(at, now.UnixNano())
		}
		r.End = EndOf(*j)
	}
	if q := t.Request; q != nil {
		r.Desired.Nonce, r.Desired.BootId, r.End = q.Nonce, q.BootID, nil
		r.Request.Command, r.Request.Cwd, r.Request.EnvOverrides = q.Command, q.Cwd, q.Env
		if t.Cancelled {
			r.Desired.CancelRequestedAt = now.UnixNano()
		}
	}
	return r
}

// isAgents reports whether an exec is an agent's process. Clients cannot choose such IDs, so only a request, which
// no process in the container can write, proves one.
func isAgents(t execjournal.Trace) bool {
	_, _, ok := execid.OfAgent(t.ExecID)
	return ok && t.Request != nil
}

func earliest(j *execjournal.Journal) int64 { return cmp.Or(max(j.StartedAtNanos, 0), j.EndedAtNanos) }

// EndOf converts the journal of an exec to its terminal record; nil for one that has not ended. A stop of the container counts as a
// cancellation, as in the record of the controller's pass while the sandbox ends.
func EndOf(j execjournal.Journal) *storev1.ExecEnd {
	switch j.State {
	case execjournal.StateClosed:
		return &storev1.ExecEnd{State: int32(agboxv1.ExecState_EXEC_STATE_CANCELLED)}
	case execjournal.StateEnded:
		return execend.Of(j, true)
	}
	return nil
}

// settleExecs assigns an exec ID that several sandboxes have: to the log's sandbox first, then to one with a request, which no
// container can write. Journals alone prove nothing, so an ID that only journals claim is dropped.
func (o *Output) settleExecs(in Input) {
	rank := o.ranks(in)
	best, claims := map[string]int{}, map[string]int{}
	for _, s := range o.Sandboxes {
		for _, e := range s.Execs {
			id, r := e.GetExecId(), rank(s, e)
			switch {
			case r > best[id]:
				best[id], claims[id] = r, 1
			case r == best[id]:
				claims[id]++
			}
		}
	}
	for i := range o.Sandboxes {
		s := &o.Sandboxes[i]
		s.Execs = slices.DeleteFunc(s.Execs, func(e *storev1.ExecRecord) bool {
			id, r := e.GetExecId(), rank(*s, e)
			if r == best[id] && (r > byJournal || claims[id] == 1) {
				return false
			}
			o.Skipped = append(o.Skipped, Skipped{
				Kind: "exec", ID: id, SandboxID: s.Record.GetSandboxId(), Reason: "another sandbox has an exec of that ID",
			})
			s.guess("execs")
			return true
		})
	}
}

// The strength of a claim.
const (
	byJournal = iota + 1
	byRequest
	byRecord
)

func (o *Output) ranks(in Input) func(Sandbox, *storev1.ExecRecord) int {
	type key struct{ sandbox, exec string }
	better := map[key]int{}
	request := func(sandboxID string, traces []execjournal.Trace) {
		for _, t := range traces {
			if t.Request != nil {
				better[key{sandboxID, t.ExecID}] = byRequest
			}
		}
	}
	for _, f := range in.Found {
		request(f.ID, f.Traces)
	}
	for _, k := range in.Known {
		request(k.Record.GetSandboxId(), k.Traces)
		for _, e := range k.Execs {
			better[key{k.Record.GetSandboxId(), e.GetExecId()}] = byRecord
		}
	}
	return func(s Sandbox, e *storev1.ExecRecord) int {
		return max(byJournal, better[key{s.Record.GetSandboxId(), e.GetExecId()}])
	}
}
