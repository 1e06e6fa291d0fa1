package store

import (
	"errors"
	"fmt"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// execs checks the execs of one sandbox: their records are complete and agree with the events.
func (c *checker) execs(id string, e checkedEvents, isDeleted bool) {
	c.each(prefixExecConfig+id, func(execID string, _ []byte) { c.exec(id, execID, e, isDeleted) })
	for _, bucket := range []string{prefixExecDesired + id, prefixExecStatus + id} {
		c.each(bucket, func(execID string, _ []byte) {
			if !c.has(prefixExecConfig+id, execID) {
				c.report(bucket, execID, "there is no exec-config of it")
			}
		})
	}
	for execID := range e.execs {
		if !c.has(prefixExecConfig+id, execID) {
			c.report(prefixEvents+id, fmt.Sprint(e.execs[execID][0].seq), "there is no exec %s", execID)
		}
	}
}

func (c *checker) exec(id, execID string, e checkedEvents, isDeleted bool) {
	if !c.has(bucketExecID, execID) {
		c.report(bucketExecID, execID, "the ID is not reserved, and sandbox %s has an exec of it", id)
	}
	c.refersTo(id, execID)
	if req := (&agboxv1.CreateExecRequest{}); c.message(prefixExecConfig+id, execID, id, req) == nil &&
		(req.GetSandboxId() != id || req.GetExecId() != execID) {
		c.report(prefixExecConfig+id, execID, "it says that it is exec %q of sandbox %q", req.GetExecId(), req.GetSandboxId())
	}
	var d storev1.ExecDesired
	if c.execDesired(id, execID, &d) == nil {
		c.checkEvent(prefixExecDesired+id, execID, e, d.GetStartedSequence(), e.execs[execID][0], agboxv1.EventType_EXEC_STARTED)
	}
	if !c.has(prefixExecStatus+id, execID) {
		c.notEnded(id, execID, e, isDeleted)
		return
	}
	var end storev1.ExecEnd
	if c.execEnd(id, execID, &end) != nil {
		return
	}
	kind, _ := endEvent(agboxv1.ExecState(end.GetState())) // execEnd has checked the state
	c.checkEvent(prefixExecStatus+id, execID, e, end.GetSequence(), e.execs[execID][1], kind)
	if d.GetNonce() != "" && end.GetSequence() <= d.GetStartedSequence() {
		c.report(prefixExecStatus+id, execID, "it ended with event %d and began with %d", end.GetSequence(), d.GetStartedSequence())
	}
}

func (c *checker) refersTo(id, execID string) {
	var ref storev1.ExecRef
	err := decode(get(c.tx, bucketExecRefs, []byte(execID)), &ref)
	switch {
	case errdefs.IsNotFound(err):
		c.report(bucketExecRefs, execID, "it is missing; the exec is in sandbox %s", id)
	case err == nil && ref.GetSandboxId() != id:
		c.report(bucketExecRefs, execID, "it names sandbox %q, and the exec is in %s", ref.GetSandboxId(), id)
	}
}

func (c *checker) notEnded(id, execID string, e checkedEvents, isDeleted bool) {
	if isDeleted {
		c.report(prefixExecConfig+id, execID, "the sandbox is deleted, and the exec has not ended")
	}
	if last := e.execs[execID][1]; last.seq != 0 && last.kind != agboxv1.EventType_EXEC_STARTED {
		c.report(prefixExecStatus+id, execID, "it is missing, and event %d tells of the end", last.seq)
	}
}

// checkEvent checks that the record names the event about it, unless the history limit dropped that event.
func (c *checker) checkEvent(bucket, execID string, e checkedEvents, seq uint64, at checkedEvent, kind agboxv1.EventType) {
	if err := e.match(seq, at, kind); err != nil {
		c.report(bucket, execID, "%v", err)
	}
}

func (e checkedEvents) match(seq uint64, at checkedEvent, kind agboxv1.EventType) error {
	switch {
	case seq == 0 || seq > e.last:
		return fmt.Errorf("it names event %d of %d", seq, e.last)
	case at == (checkedEvent{seq, kind}):
		return nil
	case seq <= e.trimmed && at.seq != seq:
		return nil // dropped; at is the exec's other event
	case at.seq == 0:
		return errors.New("no event tells of it")
	}
	return fmt.Errorf("it names event %d as its %s, and there is %s at %d", seq, kind, at.kind, at.seq)
}
