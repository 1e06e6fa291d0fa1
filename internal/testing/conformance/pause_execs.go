package conformance

import (
	"os"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

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
