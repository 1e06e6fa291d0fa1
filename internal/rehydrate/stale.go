package rehydrate

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// lostEvents is far more than may have been told behind the last record that could be read.
const lostEvents = 1 << 16

// stale is a record behind which newer ones may be missing: no number of an event is given twice, and no clock leads to a
// removal, or to any other end, sooner than one that begins now.
func (in Input) stale(rec *storev1.SandboxRecord, now time.Time) *storev1.SandboxRecord {
	rec = proto.CloneOf(rec)
	rec.LastSequence = max(rec.GetLastSequence()+lostEvents, sequenceFloor(now))
	rec.StateChangedAt = now.UnixNano()
	d := rec.GetDesired()
	if d.GetDemotedAt() != 0 {
		d.DemotedAt = now.UnixNano()
	}
	if at := d.GetDeadlineAt(); at != 0 {
		d.DeadlineAt = later(at, in.deadline(rec.GetSpec(), now))
	}
	return rec
}

// later of two deadlines, of which 0 is never.
func later(a, b int64) int64 {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}

// guess names fields that are not known for certain.
func (s *Sandbox) guess(fields ...string) {
	all := slices.Concat(s.Defaulted, fields)
	slices.Sort(all)
	s.Defaulted = slices.Compact(all)
}
