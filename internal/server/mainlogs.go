package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/sandboxstate"
	"github.com/agbox/agbox/store"
)

// noTimes is why the times of a log are unknown.
const noTimes = "the times of this output are not on record, because an earlier release of agboxd created the container"

// main sends the output of the main process: both streams in the order in which the supervisor read their lines.
func (l *sandboxLogs) main(ctx context.Context, req *agboxv1.StreamLogsRequest, send func(*agboxv1.LogChunk) error) error {
	sb, err := l.store.Sandbox(ctx, req.GetSandboxId())
	if err != nil {
		return err
	}
	if len(sb.Spec.GetCommand()) == 0 {
		return invalid("sandbox_id", fmt.Sprintf("sandbox %s has no main process: its spec has no \"command\"", sb.ID))
	}
	m := &mainLogs{each: req.GetSince() != nil, send: send}
	defer m.close()
	for i, offset := range []int64{req.GetStdoutOffset(), req.GetStderrOffset()} {
		stream := agboxv1.OutputStream_OUTPUT_STREAM_STDOUT + agboxv1.OutputStream(i)
		m.logs[i] = &timedLog{logReader: l.reader(store.Exec{ID: execid.Main, SandboxID: sb.ID}, stream, offset)}
	}
	grown, stopFollowing := l.outputs.Follow(sb.ID, execid.Main)
	defer stopFollowing()
	changed, stopWatching := l.store.Watch(sb.ID)
	defer stopWatching()
	if err := m.start(req); err != nil {
		return err
	}
	return l.whileServing(ctx, func(ctx context.Context) error {
		for {
			sb, err := l.store.Sandbox(ctx, sb.ID)
			if err != nil {
				return ignoreGone(err)
			}
			if err := m.sendAll(ctx); err != nil {
				return err
			}
			if !req.GetFollow() || !mayRun(sb) {
				return nil
			}
			select {
			case <-grown:
			case _, open := <-changed:
				if !open {
					return nil
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}

// ignoreGone ignores that an object was purged.
func ignoreGone(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// mayRun reports whether the containers of a sandbox may run, now or after what is under way.
func mayRun(sb store.Sandbox) bool {
	return sandboxstate.IsUp(sb.State) || sb.State == agboxv1.SandboxState_SANDBOX_STATE_PENDING
}

// mainLogs merges the two logs of a main process by time.
type mainLogs struct {
	logs [2]*timedLog
	each bool // each chunk has the time of all its lines; otherwise chunks are as large as the order permits, without times
	send func(*agboxv1.LogChunk) error
}

func (m *mainLogs) close() {
	for _, l := range m.logs {
		l.close()
	}
}

// start moves both logs to where the request starts, and sends these positions if the client can't know them.
func (m *mainLogs) start(req *agboxv1.StreamLogsRequest) error {
	known := true
	for _, l := range m.logs {
		if req.TailLines != nil && req.GetStdoutOffset() == 0 && req.GetStderrOffset() == 0 {
			if err := l.tail(int(req.GetTailLines())); err != nil {
				return err
			}
		}
		if req.GetSince() != nil {
			ok, err := l.since(req.GetSince().AsTime())
			if err != nil {
				return err
			}
			known = known && ok
		}
		if req.TailLines != nil || req.GetSince() != nil {
			if err := m.send(&agboxv1.LogChunk{Stream: l.stream, Offset: l.offset}); err != nil {
				return err
			}
		}
	}
	if known {
		return nil
	}
	return m.send(&agboxv1.LogChunk{Problem: noTimes})
}

// sendAll sends what both logs hold now.
func (m *mainLogs) sendAll(ctx context.Context) error {
	for _, l := range m.logs {
		if err := l.refresh(); err != nil {
			return err
		}
	}
	for {
		l, other := m.logs[0], m.logs[1]
		if l.offset >= l.end || other.offset < other.end && other.at.Before(l.at) {
			l, other = other, l
		}
		if l.offset >= l.end {
			return nil
		}
		until := time.Time{} // the next line of the same stream has a time of its own
		if !m.each {
			until = endOfTime
			if other.offset < other.end {
				until = other.at
			}
		}
		if err := m.sendUntil(ctx, l, until); err != nil {
			return err
		}
	}
}

// endOfTime is later than any time of a line.
var endOfTime = time.Unix(1<<40, 0)

// sendUntil sends the lines that have the time of the next one, and those after it that are not later than a time.
func (m *mainLogs) sendUntil(ctx context.Context, l *timedLog, until time.Time) error {
	var at *timestamppb.Timestamp
	if m.each && !l.at.IsZero() {
		at = timestamppb.New(l.at)
	}
	end, err := l.advance(until)
	if err != nil {
		return err
	}
	before := l.offset
	err = sendTo(ctx, l.logReader, end, func(c *agboxv1.OutputChunk) error {
		return m.send(&agboxv1.LogChunk{Stream: c.GetStream(), Offset: c.GetOffset(), Data: c.GetData(), Time: at})
	})
	if err != nil {
		return err
	}
	if l.offset == before {
		l.end = l.offset // it was cut off meanwhile
	}
	_, err = l.advance(time.Time{})
	return err
}

// timedLog is a log of a main process with the times of its lines, which are untrusted.
type timedLog struct {
	*logReader
	times   *execjournal.LineTimes // nil: there are none
	entries int64                  // the number of times; all that is before end has its time among them
	next    int64                  // the first time that is of a line beyond the offset
	at      time.Time              // of the line at the offset; zero: unknown
	end     int64                  // of the part to send
}

func (l *timedLog) close() {
	l.logReader.close()
	if l.times != nil {
		_ = l.times.Close()
	}
}

// refresh reads the present size of the log and its times. A line's time is stored before the line.
func (l *timedLog) refresh() (err error) {
	if l.end, err = l.size(); err != nil || l.end == 0 {
		return err
	}
	if l.times == nil {
		if l.times, err = l.outputs.OpenTimes(l.sandboxID, l.execID, l.stream == agboxv1.OutputStream_OUTPUT_STREAM_STDERR); err != nil || l.times == nil {
			return ignoreMalformed(err)
		}
		if l.next, err = l.times.Search(func(t execjournal.LineTime) bool { return t.Offset > l.offset }); err != nil {
			return err
		}
		l.next = max(0, l.next-1) // advance reads the time of the line at the offset
	}
	if l.entries, err = l.times.Len(); err != nil {
		return err
	}
	_, err = l.advance(time.Time{})
	return err
}

// ignoreMalformed ignores that a process in the sandbox has replaced a file that is not needed.
func ignoreMalformed(err error) error {
	if errors.Is(err, execjournal.ErrMalformed) {
		return nil
	}
	return err
}

// advance reads the times of the lines up to the offset, and of those after it that are not later than until. It returns where the lines
// without these times start.
func (l *timedLog) advance(until time.Time) (int64, error) {
	for ; l.next < l.entries; l.next++ {
		t, err := l.times.At(l.next)
		if err != nil {
			return 0, err
		}
		if t.Offset > l.offset && t.At.After(until) {
			return min(t.Offset, l.end), nil
		}
		l.at = t.At
	}
	return l.end, nil
}

// since moves to the first line that is not older than t, if that is beyond the offset. It returns false if the times are unknown.
func (l *timedLog) since(t time.Time) (known bool, err error) {
	if err := l.refresh(); err != nil || l.end == 0 {
		return true, err
	}
	if l.entries == 0 || !t.After(time.Unix(0, 0)) { // forged times may be earlier
		return l.entries > 0, nil
	}
	i, err := l.times.Search(func(line execjournal.LineTime) bool { return !line.At.Before(t) })
	if err != nil || i == 0 {
		return true, err
	}
	start := l.end
	if i < l.entries {
		first, err := l.times.At(i)
		if err != nil {
			return true, err
		}
		start = min(first.Offset, l.end)
	}
	if start > l.offset {
		l.offset, l.next = start, max(l.next, i-1)
	}
	return true, nil
}
