package conformance

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/execjournal"
)

func subscriptions(t *testing.T, c *client) {
	c.sub(t, "what was there is a replay, what comes is live", func(c *client) {
		id := c.ready()
		s := c.subscribe(id, 0, false)
		for n := uint64(1); n <= 3; n++ {
			if e := s.next(); e.GetSequence() != n || !e.GetReplay() || e.GetSnapshot() {
				c.Errorf("event %d: %v", n, e)
			}
		}
		c.must(c.tryStop(id))
		for _, e := range s.until(agboxv1.EventType_SANDBOX_STOPPED) {
			if e.GetReplay() || e.GetSnapshot() {
				c.Errorf("live: %v", e)
			}
		}
	})
	c.sub(t, "an anchor delivers what is newer, and the newest is an anchor", func(c *client) {
		id := c.ready()
		if e := c.subscribe(id, 2, false).next(); e.GetSequence() != 3 {
			c.Errorf("after 2 comes %d", e.GetSequence())
		}
		s := c.subscribe(id, 3, false)
		c.must(c.tryStop(id))
		if e := s.next(); e.GetSequence() != 4 || e.GetReplay() {
			c.Errorf("after the newest comes %v", e)
		}
		c.await(id, stopped)
		c.expired(id, 6)
		c.expired(id, 1<<60)
	})
	c.sub(t, "a snapshot begins with the newest event and the active execs", snapshot)
	c.sub(t, "two subscribers see the same", func(c *client) {
		id := c.create()
		one, two := c.subscribe(id, 0, false), c.subscribe(id, 0, false)
		a, b := one.until(agboxv1.EventType_SANDBOX_READY), two.until(agboxv1.EventType_SANDBOX_READY)
		if !slices.EqualFunc(a, b, func(x, y *event) bool { return x.GetEventId() == y.GetEventId() }) {
			c.Errorf("%v\n%v", a, b)
		}
	})
}

func snapshot(c *client) {
	id := c.ready()
	one, two := "a"+newID(), "b"+newID()
	c.exec(id, two, "sleep", "60")
	c.exec(id, one, "sleep", "60")
	newest := c.get(id).GetLastEventSequence()
	s := c.subscribe(id, 0, true)
	first := s.next()
	if first.GetSequence() != newest || !first.GetSnapshot() || first.GetEventId() != fmt.Sprintf("%s-%d", id, newest) {
		c.Errorf("first: %v", first)
	}
	for _, x := range []string{one, two} {
		e := s.next()
		if e.GetEventId() != id+"-snapshot-"+x || e.GetSequence() != newest || !e.GetSnapshot() {
			c.Errorf("synthetic: %v", e)
		}
		c.rows([]*event{e}, started(x))
	}
	for n := uint64(1); n < newest; n++ { // the newest is not sent again
		if e := s.next(); e.GetSequence() != n || !e.GetReplay() || e.GetSnapshot() {
			c.Errorf("event %d: %v", n, e)
		}
	}
	c.must(c.tryCancel(one))
	if e := s.next(); e.GetSequence() != newest+1 || e.GetReplay() || e.GetSnapshot() {
		c.Errorf("live: %v", e)
	}
	at := c.get(id).GetLastEventSequence()
	s = c.subscribe(id, at, true)
	if e := s.next(); e.GetSequence() != at || !e.GetSnapshot() {
		c.Errorf("snapshot at the newest: %v", e)
	}
}

// expired checks the refusal of an anchor.
func (c *client) expired(id string, from uint64) {
	c.Helper()
	err := c.subscribe(id, from, false).ends()
	oldest := infoOfError(err).GetMetadata()["oldest_sequence"]
	if n, parse := strconv.ParseUint(oldest, 10, 64); parse != nil || n == 0 {
		c.Errorf("oldest_sequence is %q", oldest)
	}
	c.refused(err, refusal{
		codes.OutOfRange, "SANDBOX_EVENT_SEQUENCE_EXPIRED", fmt.Sprintf("sandbox %s event sequence %d is outside retained history", id, from),
		map[string]string{"sandbox_id": id, "from_sequence": strconv.FormatUint(from, 10), "oldest_sequence": oldest},
	})
}

// history has what needs a daemon of its own: its end, a purge, a bound.
func history(t *testing.T, c *client) {
	own(t, c.target, "a stream ends with the daemon and goes on with the next", Settings{}, func(c *client) {
		id := c.ready()
		s := c.subscribe(id, 3, false)
		c.daemon.Stop(c)
		if err := s.ends(); status.Code(err) != codes.Unavailable {
			c.Errorf("the stream ended with %v", err)
		}
		c.daemon.Restart(c)
		c = newClient(c, c.target, c.daemon)
		s = c.subscribe(id, 3, false)
		c.must(c.tryStop(id))
		s.until(agboxv1.EventType_SANDBOX_STOPPED)
		c.rows(c.history(id), rowAccepted, rowPreparing, rowReady, rowToStop, rowStopped)
	})
	own(t, c.target, "a purge ends a stream cleanly, and the ID stays used", Settings{EventRetention: time.Second}, func(c *client) {
		id := c.ready()
		s := c.subscribe(id, 0, false)
		c.must(c.tryDelete(id))
		s.until(agboxv1.EventType_SANDBOX_DELETED)
		if err := s.ends(); err != nil {
			c.Errorf("the stream ended with %v", err)
		}
		c.refused(errOf(c.GetSandbox(c.ctx(), &agboxv1.GetSandboxRequest{SandboxId: id})), sandboxNotFound(id))
		c.refused(c.tryPlain(id, ""), aboutSandbox(codes.AlreadyExists, "SANDBOX_ID_ALREADY_EXISTS", id, "sandbox_id %s already exists"))
	})
	own(t, c.target, "what rests for too long is deleted", Settings{CleanupTTL: 2 * time.Second}, func(c *client) {
		id := c.ready()
		c.must(c.tryStop(id))
		c.await(id, deleted)
		c.rows(c.history(id), rowAccepted, rowPreparing, rowReady, rowToStop, rowStopped,
			"DELETE_REQUESTED DELETING reason=cleanup_ttl", "DELETED DELETED reason=cleanup_ttl")
	})
	own(t, c.target, "logs are bounded", Settings{LogLimitBytes: 4096}, fullLogs)
	own(t, c.target, "a bound of the history drops the oldest events of execs", Settings{EventHistoryLimit: 100}, trimmed)
}

// fullLogs has execs write more than their logs may hold.
func fullLogs(c *client) {
	const limit, printed = 4096, 100_000
	command := []string{"sh", "-c", fmt.Sprintf("yes | head -c %d", printed)}
	drop, kill := c.ready(), c.ready(func(s *spec) { s.OnLogLimit = "kill" })
	resp := c.execRequest(&agboxv1.CreateExecRequest{SandboxId: drop, Command: command})
	st := c.ended(resp.GetExecId())
	if st.GetState() != agboxv1.ExecState_EXEC_STATE_FINISHED || st.GetStdoutDroppedBytes() != printed-limit || st.GetStderrDroppedBytes() != 0 {
		c.Errorf("dropped: %v", st)
	}
	c.holds(resp.GetStdoutLogPath(), strings.Repeat("y\n", limit/2)+execjournal.DroppedMarker(limit))
	resp = c.execRequest(&agboxv1.CreateExecRequest{SandboxId: kill, Command: []string{"yes"}})
	st = c.ended(resp.GetExecId())
	if st.GetState() != agboxv1.ExecState_EXEC_STATE_FAILED || st.GetErrorCode() != "EXEC_LOG_LIMIT" {
		c.Errorf("killed: %v", st)
	}
	c.sentence("error", st.GetError())
	c.holds(resp.GetStdoutLogPath(), strings.Repeat("y\n", limit/2))
}

// trimmed makes 120 events of execs where 100 are kept.
func trimmed(c *client) {
	id := c.ready()
	for range 60 {
		c.ended(c.exec(id, "", "true"))
	}
	newest := c.get(id).GetLastEventSequence()
	s := c.subscribe(id, 0, false)
	var kept []uint64
	for len(kept) == 0 || kept[len(kept)-1] < newest {
		kept = append(kept, s.next().GetSequence())
	}
	if len(kept) > 100 || !slices.Equal(kept[:3], []uint64{1, 2, 3}) || !slices.IsSorted(kept) {
		c.Errorf("kept are %d: %v", len(kept), kept)
	}
	c.expired(id, 4)
	if e := c.subscribe(id, newest-1, false).next(); e.GetSequence() != newest {
		c.Errorf("after %d comes %d", newest-1, e.GetSequence())
	}
}
