package store

import (
	"fmt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// sandbox checks one sandbox, live or deleted.
func (c *checker) sandbox(id string) {
	if !c.has(bucketSandboxID, id) {
		c.report(bucketSandboxID, id, "the ID is not reserved, and there are records of it")
	}
	isDeleted := c.has(bucketDeletedAt, id)
	if isDeleted && !c.has(bucketConfig, id) && !c.has(bucketDesired, id) {
		return // an unfinished purge, which the next start completes
	}
	c.spec(id)
	c.progress(id)
	desired := c.desired(id)
	c.holdsName(id, desired, isDeleted)
	e := c.events(id)
	c.state(id, e)
	if told := desired.GetRehydrated() != nil; desired != nil && e.last > 0 && told != e.rebuilt {
		c.report(bucketDesired, id, "that the record was rebuilt is %v, and the events say %v", told, e.rebuilt)
	}
	if desired != nil && e.last > 0 {
		c.lifetime(id, desired, e.state)
	}
	last := e.state
	if isDeleted != (last == agboxv1.SandboxState_SANDBOX_STATE_DELETED) && e.last > 0 {
		c.report(bucketDeletedAt, id, "deleted is %v, and the last state is %s", isDeleted, last)
	}
	c.execs(id, e, isDeleted)
}

func (c *checker) spec(id string) {
	var spec agboxv1.CreateSpec
	_ = c.message(bucketConfig, id, id, &spec) // the loader reports errors
}

// holdsName checks that a live sandbox with a name holds it until its delete is requested.
func (c *checker) holdsName(id string, d *storev1.Desired, isDeleted bool) {
	if d.GetName() == "" || isDeleted || d.GetRunState() == storev1.RunState_RUN_STATE_DELETE {
		return
	}
	var ref storev1.NameRef
	if err := decode(get(c.tx, bucketNames, []byte(d.GetName())), &ref); err != nil {
		if !c.has(bucketNames, d.GetName()) {
			c.report(bucketNames, d.GetName(), "sandbox %s has this name and does not hold it", id)
		}
		return // a reference that does not decode is reported with the names
	}
	if ref.GetSandboxId() != id {
		c.report(bucketNames, d.GetName(), "sandbox %s has this name, and %q holds it", id, ref.GetSandboxId())
	}
}

// checkedEvents is the content of the events of one sandbox.
type checkedEvents struct {
	trimmed uint64 // highest dropped sequence, as recorded
	last    uint64 // 0: there is none
	// state is the last one, and run the sequence of the first event of its unbroken run.
	state agboxv1.SandboxState
	run   uint64
	// rebuilt: the first event is SANDBOX_REHYDRATED.
	rebuilt bool
	// execs holds the first and the last kept event of each exec.
	execs map[string][2]checkedEvent
}

type checkedEvent struct {
	seq  uint64
	kind agboxv1.EventType
}

// events checks that they start at 1 or with SANDBOX_REHYDRATED, that only events that the history limit may drop are missing, and that
// each is consistent.
func (c *checker) events(id string) checkedEvents {
	e := checkedEvents{execs: map[string][2]checkedEvent{}}
	if v := get(c.tx, bucketTrimmed, []byte(id)); v != nil {
		e.trimmed, _ = decodeInt(v) // reported with the bucket
	}
	bucket := prefixEvents + id
	c.each(bucket, func(key string, v []byte) {
		seq, err := decodeInt([]byte(key))
		if err != nil {
			c.report(bucket, fmt.Sprintf("%x", key), "the key is no sequence")
			return
		}
		ev, err := c.event(id, []byte(key), v) // the loader reports errors
		c.gap(bucket, e, seq, isRebuilt(ev))
		e.last = seq
		if err == nil {
			c.oneEvent(bucket, ev, &e)
		}
	})
	switch {
	case e.last == 0:
		c.report(bucket, "", "there is no event")
	case e.trimmed >= e.last:
		c.report(bucketTrimmed, id, "everything up to %d went, and the newest event is %d", e.trimmed, e.last)
	}
	return e
}

// gap checks that the events missing before seq were dropped by the history limit or precede a rebuilt record.
func (c *checker) gap(bucket string, e checkedEvents, seq uint64, rebuilt bool) {
	missing := seq - e.last - 1
	switch {
	case rebuilt && e.last != 0:
		c.report(bucket, fmt.Sprint(seq), "a rebuilt record begins with it, and there are events before it")
	case e.last == 0 && seq > 1 && !rebuilt:
		c.report(bucket, "1", "the first event is missing; the oldest is %d", seq)
	case missing > 0 && seq-1 > e.trimmed:
		c.report(bucket, fmt.Sprint(max(e.last, e.trimmed)+1), "events up to %d are missing, and it is recorded that those up to %d went", seq-1, e.trimmed)
	case seq == e.trimmed:
		c.report(bucketTrimmed, bucket[len(prefixEvents):], "event %d went, it says, and it is there", seq)
	}
}

func (c *checker) oneEvent(bucket string, ev *agboxv1.SandboxEvent, e *checkedEvents) {
	seq, state := ev.GetSequence(), ev.GetSandboxState()
	key := fmt.Sprint(seq)
	if ev.GetEventId() != fmt.Sprintf("%s-%d", ev.GetSandboxId(), seq) || ev.GetOccurredAt() == nil {
		c.report(bucket, key, "it has the ID %q, or no time", ev.GetEventId())
	}
	if beginsRun(ev, e.state) {
		e.state, e.run = state, seq
	}
	e.rebuilt = e.rebuilt || isRebuilt(ev)
	execID := ev.GetExec().GetExecId()
	if isExecEvent(ev.GetEventType()) != (execID != "") {
		c.report(bucket, key, "%s about exec %q", ev.GetEventType(), execID)
	}
	if execID == "" {
		return
	}
	this := checkedEvent{seq, ev.GetEventType()}
	known, twice := e.execs[execID]
	if !twice {
		known[0] = this
	} else if known[1] != known[0] {
		c.report(bucket, key, "exec %s has more than two events", execID)
	}
	known[1] = this
	e.execs[execID] = known
}

// state checks that the bucket names the first event of the current run.
func (c *checker) state(id string, e checkedEvents) {
	seq, err := decodeInt(get(c.tx, bucketState, []byte(id)))
	if c.noted(bucketState, id, id, err) == nil && e.last > 0 && seq != e.run {
		c.report(bucketState, id, "it names event %d, and the present run of the state %s began at %d", seq, e.state, e.run)
	}
}
