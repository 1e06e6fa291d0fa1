package conformance

import (
	"os"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// paused is a state of ours.
const paused = agboxv1.SandboxState_SANDBOX_STATE_PAUSED

// The rows of a requested pause, and of its resume.
const (
	rowToPause = "PAUSE_REQUESTED READY reason=pause_requested"
	rowPaused  = "PAUSED PAUSED reason=pause_requested"
)

func alreadyPaused(id string) refusal {
	return aboutSandbox(codes.FailedPrecondition, "SANDBOX_ALREADY_PAUSED", id, "sandbox %s is already paused")
}

func pauses(t *testing.T, c *client) {
	c.sub(t, "pause and resume, with services", pauseAndResume)
	c.sub(t, "a pause that is asked for twice leaves one event", pauseTwice)
	c.sub(t, "an exec goes on where it was frozen", frozenExec)
	c.sub(t, "an exec is refused, or wakes the sandbox up", execOnPaused)
	c.sub(t, "an exec turns a pause back that is under way", func(c *client) {
		id := c.ready(autoResume)
		c.asksForPause(id)
		c.endedIn(finished, c.exec(id, "", "true"))
	})
	c.sub(t, "of four resumes at once none is refused before the first has an effect", func(c *client) {
		for _, rest := range []func(string){c.pauses, c.stops} {
			c.resumeAtOnce(4, rest)
		}
	})
	c.sub(t, "a stop of a paused sandbox", stopPaused)
	c.sub(t, "a delete of a paused sandbox", func(c *client) {
		id := c.paused()
		c.deletes(id)
		c.allRows(c.history(id)[4:], rowPaused, rowToDelete, rowDeleted)
	})
	c.sub(t, "a paused sandbox that is killed", func(c *client) {
		id := c.paused()
		c.daemon.Break(c, id, KillPrimary)
		c.failsWith(id, "CONTAINER_DIED", "paused")
	})
	c.sub(t, "a paused sandbox is not idle", func(c *client) {
		short := func(s *spec) { s.IdleTtl = durationpb.New(time.Second) }
		id := c.ready(short)
		if c.tryPause(id) != nil { // this machine slept for a second
			return
		}
		c.await(id, paused)
		c.await(c.create(short), stopped) // has had the same time and more
		if h := c.get(id); h.GetState() != paused {
			c.Errorf("%v", h)
		}
	})
}

func autoResume(s *spec) { s.AutoResume = true }

func (c *client) tryPause(id string) error {
	_, err := c.PauseSandbox(c.ctx(), &agboxv1.PauseSandboxRequest{SandboxId: id})
	return err
}

// asksForPause ends the test where a pause is refused, as it must be.
func (c *client) asksForPause(id string) {
	c.Helper()
	c.frozen(c.tryPause(id), id)
}

// frozen checks the answer to a call that freezes a sandbox. An engine that can't freeze ends the test.
func (c *client) frozen(err error, id string) {
	c.Helper()
	if c.target.NoCgroups {
		c.refused(err, aboutSandbox(codes.FailedPrecondition, "ENGINE_CANNOT_FREEZE", id, "sandbox %s can't be frozen: ..."))
		c.Skip("the engine can't freeze")
	}
	c.must(err)
}

// pauses asks for a pause and waits for it.
func (c *client) pauses(id string) {
	c.Helper()
	c.asksForPause(id)
	c.await(id, paused)
}

// paused is a sandbox that is PAUSED.
func (c *client) paused(change ...func(*spec)) string {
	c.Helper()
	id := c.ready(change...)
	c.pauses(id)
	return id
}

func pauseAndResume(c *client) {
	id := c.ready(required(c.well("one")), optional(c.well("two")))
	c.subscribe(id, 0, false).untilBoth(serviceReady, "one", serviceReady, "two")
	before := len(c.history(id))
	c.pauses(id)
	h := c.get(id)
	if h.GetDesiredState() != "" || h.GetDemotedAt() != nil || len(h.GetPorts()) != 0 || h.GetErrorCode() != "" {
		c.Errorf("paused: %v", h)
	}
	c.refused(c.tryPause(id), alreadyPaused(id))
	c.resumes(id)
	c.refused(c.tryResume(id), notStopped(id))
	c.allRows(c.history(id)[before:], rowToPause, rowPaused, rowAccepted, rowReady)
	c.ended(c.exec(id, "", "true"))
	c.pauses(id) // again
}

func pauseTwice(c *client) {
	id := c.ready()
	c.asksForPause(id)
	if err := c.tryPause(id); err != nil { // done already
		c.refused(err, alreadyPaused(id))
	}
	c.await(id, paused)
	c.allRows(c.history(id), rowAccepted, rowPreparing, rowReady, rowToPause, rowPaused)
}

// resumeAtOnce brings a sandbox to rest and has n clients resume it. One that comes when the sandbox is READY again is refused.
func (c *client) resumeAtOnce(n int, rest func(id string)) {
	c.Helper()
	id := c.ready()
	rest(id)
	before := len(c.history(id))
	answers := make(chan error)
	for range n {
		go func() { answers <- c.tryResume(id) }()
	}
	for range n {
		if err := <-answers; err != nil {
			c.refused(err, notStopped(id))
			c.isState(id, ready)
		}
	}
	c.await(id, ready)
	c.allRows(c.history(id)[before:], rowAccepted, rowReady)
}

// stopPaused has an exec that is frozen as well; it is thawed to end.
func stopPaused(c *client) {
	id, x := c.ready(), newID()
	c.exec(id, x, "sleep", "3600")
	c.pauses(id)
	before := len(c.history(id))
	c.must(c.tryStop(id))
	if err := c.tryStop(id); err != nil { // done already
		c.refused(err, notReady(id))
		c.isState(id, stopped)
	}
	if h := c.get(id); h.GetState() != stopped && (h.GetState() != paused || h.GetDesiredState() != "stopped") {
		c.Errorf("under way: %v", h)
	}
	c.await(id, stopped)
	c.endedIn(cancelled, x)
	list := c.history(id)
	c.allRows(append(list[before:before+1:before+1], list[before+2:]...), "STOP_REQUESTED PAUSED reason=stop_requested", "STOPPED STOPPED reason=stop_requested")
	c.resumes(id)
}

// frozenExec has an exec that writes all the time, until there is a file.
func frozenExec(c *client) {
	id, file := c.ready(), "/tmp/"+newID()
	resp := c.execRequest(&agboxv1.CreateExecRequest{
		SandboxId: id, Command: []string{"sh", "-c", "until [ -e " + file + " ]; do echo tick; sleep 0.02; done"},
	})
	written := func() int {
		text, _ := os.ReadFile(resp.GetStdoutLogPath()) // absent before it begins
		return len(text)
	}
	c.eventually(func() bool { return written() > 0 })
	c.pauses(id)
	before := 0
	c.eventually(func() bool {
		before = written()
		time.Sleep(300 * time.Millisecond) // that nothing happens takes time to see
		return written() == before
	})
	if h := c.get(id); h.GetActiveExecs() != 1 || h.GetState() != paused {
		c.Errorf("frozen: %v", h)
	}
	c.resumes(id)
	c.eventually(func() bool { return written() > before })
	c.ended(c.exec(id, "", "touch", file))
	c.endedIn(finished, resp.GetExecId())
	c.ended(c.exec(id, "", "rm", file))
}

func execOnPaused(c *client) {
	deaf := c.paused()
	c.refused(c.tryExec(deaf), sandboxNotReady(deaf))
	if h := c.get(deaf); h.GetState() != paused || h.GetLastEventSequence() != 5 {
		c.Errorf("%v", h)
	}
	id, x := c.paused(autoResume), newID()
	c.exec(id, x, "true")
	c.endedIn(finished, x)
	c.allRows(c.history(id)[3:], rowToPause, rowPaused, rowAccepted, started(x), rowReady,
		"EXEC_FINISHED - exec_id="+x+" exec_state=FINISHED exit_code=0")
	c.stops(id)
	c.refused(c.tryExec(id), sandboxNotReady(id)) // it wakes up what is paused, not what was stopped
}
