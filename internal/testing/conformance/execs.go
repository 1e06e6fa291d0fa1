package conformance

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func execs(t *testing.T, c *client) {
	c.sub(t, "a command that ends well", func(c *client) {
		id, x := c.ready(), newID()
		resp := c.execRequest(&agboxv1.CreateExecRequest{SandboxId: id, ExecId: x, Command: []string{"sh", "-c", "echo out; echo err >&2"}})
		if filepath.Base(resp.GetStdoutLogPath()) != x+".stdout.log" || filepath.Base(resp.GetStderrLogPath()) != x+".stderr.log" {
			c.Errorf("%v", resp)
		}
		st := c.ended(x)
		if st.GetState() != agboxv1.ExecState_EXEC_STATE_FINISHED || st.GetExitCode() != 0 || st.GetError() != "" ||
			st.GetSandboxId() != id || st.GetExecId() != x || !slices.Equal(st.GetCommand(), []string{"sh", "-c", "echo out; echo err >&2"}) {
			c.Errorf("%v", st)
		}
		c.holds(resp.GetStdoutLogPath(), "out\n")
		c.holds(resp.GetStderrLogPath(), "err\n")
		events := c.history(id)[3:]
		c.rows(events, started(x), "EXEC_FINISHED - exec_id="+x+" exec_state=FINISHED exit_code=0")
		if got := events[0].GetExec().GetCommand(); !slices.Equal(got, st.GetCommand()) {
			c.Errorf("EXEC_STARTED has the command %q", got)
		}
		c.refused(c.tryCancel(x), aboutExec(codes.FailedPrecondition, "EXEC_ALREADY_TERMINAL", x, "exec %s is already terminal"))
	})
	c.sub(t, "commands that do not end well", failures)
	c.sub(t, "the environment is the sandbox's, with the exec's over it", func(c *client) {
		id := c.ready(func(s *spec) { s.Envs = map[string]string{"A": "sandbox", "B": "sandbox"} })
		resp := c.execRequest(&agboxv1.CreateExecRequest{
			SandboxId: id, Command: []string{"sh", "-c", "echo $A $B; pwd"}, EnvOverrides: map[string]string{"B": "exec"}, Cwd: "/tmp",
		})
		st := c.ended(resp.GetExecId())
		if st.GetCwd() != "/tmp" || st.GetEnvOverrides()["B"] != "exec" {
			c.Errorf("%v", st)
		}
		c.holds(resp.GetStdoutLogPath(), "sandbox exec\n/tmp\n")
	})
	c.sub(t, "a cancel ends the whole tree", func(c *client) {
		id, x := c.ready(), newID()
		c.exec(id, x, "sh", "-c", "sleep 60 & sleep 60")
		c.must(c.tryCancel(x))
		c.endedIn(cancelled, x)
	})
	c.sub(t, "a timeout ends the whole tree", func(c *client) {
		id, x := c.ready(), newID()
		c.execRequest(&agboxv1.CreateExecRequest{
			SandboxId: id, ExecId: x, Command: []string{"sh", "-c", "sleep 60 & sleep 60"}, Timeout: durationpb.New(300 * time.Millisecond),
		})
		st := c.ended(x)
		if st.GetState() != agboxv1.ExecState_EXEC_STATE_FAILED || st.GetErrorCode() != "EXEC_TIMEOUT" ||
			st.GetError() != "the command was ended: its timeout of 300ms has passed" || st.GetTimeout().AsDuration() != 300*time.Millisecond {
			c.Errorf("%v", st)
		}
	})
	c.sub(t, "a timeout must be positive", func(c *client) {
		id := c.ready()
		for _, d := range []time.Duration{-time.Second, 0, time.Microsecond} {
			_, err := c.CreateExec(c.ctx(), &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"true"}, Timeout: durationpb.New(d)})
			c.refused(err, invalid("timeout", "timeout must be 1 ms to 10 years; leave it out for none"))
		}
	})
	c.sub(t, "a cancel before the end is one event, a second cancel none", func(c *client) {
		id, x := c.ready(), newID()
		c.stubborn(id, x)
		c.must(c.tryCancel(x))
		c.must(c.tryCancel(x))
		c.ended(x)
		c.rows(c.history(id)[3:], started(x), "EXEC_CANCELLED - exec_id="+x+" exec_state=CANCELLED exit_code=137")
	})
	c.sub(t, "an exec is lost with its container", func(c *client) {
		id, x := c.ready(), newID()
		c.stubborn(id, x)
		c.daemon.Break(c, id, KillPrimary)
		st := c.ended(x)
		if st.GetState() != agboxv1.ExecState_EXEC_STATE_FAILED || st.GetErrorCode() != "EXEC_LOST" {
			c.Errorf("%v", st)
		}
		c.sentence("error", st.GetError())
		for _, e := range c.history(id) {
			if d := e.GetExec(); e.GetEventType() == agboxv1.EventType_EXEC_FAILED && (d.GetErrorCode() != "EXEC_LOST" || e.GetSandboxState() != unset) {
				c.Errorf("%v", e)
			}
		}
	})
	c.sub(t, "every container has the IDs of the daemon's user in its environment, and never root's", func(c *client) {
		c.prints(c.ready(), fmt.Sprintf("%d %d\n", cmp.Or(c.target.User, os.Getuid(), 1000), cmp.Or(c.target.User, os.Getgid(), 1000)), "sh", "-c", "echo $HOST_UID $HOST_GID")
	})
	c.sub(t, "active execs are listed by ID, of one sandbox or of all", activeExecs)
	c.sub(t, "a delete cancels what runs and removes the logs", func(c *client) {
		id, x := c.ready(), newID()
		resp := c.execRequest(&agboxv1.CreateExecRequest{SandboxId: id, ExecId: x, Command: []string{"sleep", "60"}})
		c.deletes(id)
		c.endedIn(cancelled, x)
		if _, err := os.Stat(filepath.Dir(resp.GetStdoutLogPath())); !os.IsNotExist(err) {
			c.Errorf("the logs are there: %v", err)
		}
	})
}

func failures(c *client) {
	id := c.ready()
	for _, row := range []struct {
		command []string
		code    string
		exit    int32
	}{
		{[]string{"sh", "-c", "exit 7"}, "EXEC_RUN_FAILED", 7},
		{[]string{"sh", "-c", "kill -KILL $$"}, "EXEC_RUN_FAILED", 137},
		{[]string{"/no/such/program"}, "EXEC_START_FAILED", -1},
	} {
		x := c.exec(id, "", row.command...)
		st := c.ended(x)
		if st.GetState() != agboxv1.ExecState_EXEC_STATE_FAILED || row.exit >= 0 && st.GetExitCode() != row.exit || st.GetErrorCode() != row.code {
			c.Errorf("%q: %v", row.command, st)
		}
		c.sentence("error", st.GetError())
		list := c.history(id)
		e := list[len(list)-1]
		if d := e.GetExec(); e.GetEventType() != agboxv1.EventType_EXEC_FAILED || e.GetSandboxState() != unset || d.GetExecId() != x ||
			d.GetExecState() != agboxv1.ExecState_EXEC_STATE_FAILED || d.GetErrorCode() != row.code || d.GetExitCode() != st.GetExitCode() {
			c.Errorf("%q: %v", row.command, e)
		}
		c.sentence("error_message", e.GetExec().GetErrorMessage())
		if e.GetSequence() != st.GetLastEventSequence() {
			c.Errorf("last_event_sequence is %d, the event's %d", st.GetLastEventSequence(), e.GetSequence())
		}
	}
}

func activeExecs(c *client) {
	one, other := c.ready(), c.ready()
	a, b, x := "a"+newID(), "b"+newID(), newID()
	c.exec(one, b, "sleep", "60")
	c.exec(one, a, "sleep", "60")
	c.exec(other, x, "sleep", "60")
	c.ended(c.exec(one, "", "true"))
	list := func(sandbox *string) []string {
		resp, err := c.ListActiveExecs(c.ctx(), &agboxv1.ListActiveExecsRequest{SandboxId: sandbox})
		c.must(err)
		var ids []string
		for _, e := range resp.GetExecs() {
			if ids = append(ids, e.GetExecId()); e.GetState() != agboxv1.ExecState_EXEC_STATE_RUNNING {
				c.Errorf("active: %v", e)
			}
		}
		return ids
	}
	if got := list(&one); !slices.Equal(got, []string{a, b}) {
		c.Errorf("of %s: %q", one, got)
	}
	if got := list(nil); !slices.IsSorted(got) || !slices.Contains(got, a) || !slices.Contains(got, b) || !slices.Contains(got, x) {
		c.Errorf("of all: %q", got)
	}
	empty := ""
	if got := list(&empty); len(got) != 0 {
		c.Errorf("of a sandbox with no ID: %q", got)
	}
}

func started(x string) string {
	return "EXEC_STARTED - exec_id=" + x + " exec_state=RUNNING exit_code=0"
}

// exec records a command and returns the exec's ID.
func (c *client) exec(sandbox, id string, command ...string) string {
	c.Helper()
	return c.execRequest(&agboxv1.CreateExecRequest{SandboxId: sandbox, ExecId: id, Command: command}).GetExecId()
}

func (c *client) tryExecID(sandbox, id string, command ...string) error {
	_, err := c.CreateExec(c.ctx(), &agboxv1.CreateExecRequest{SandboxId: sandbox, ExecId: id, Command: command})
	return err
}

func (c *client) execRequest(req *agboxv1.CreateExecRequest) *agboxv1.CreateExecResponse {
	c.Helper()
	resp, err := c.CreateExec(c.ctx(), req)
	c.must(err)
	return resp
}

// stubborn runs an exec that only a KILL ends, and returns when it is at that.
func (c *client) stubborn(sandbox, id string) {
	c.Helper()
	resp := c.execRequest(&agboxv1.CreateExecRequest{
		SandboxId: sandbox, ExecId: id, Command: []string{"sh", "-c", `trap "" TERM; echo deaf; while :; do sleep 1; done`},
	})
	c.eventually(func() bool {
		text, _ := os.ReadFile(resp.GetStdoutLogPath())
		return string(text) == "deaf\n"
	})
}

func (c *client) tryCancel(id string) error {
	return accepted(c.CancelExec(c.ctx(), &agboxv1.CancelExecRequest{ExecId: id}))
}

// endedIn checks in which state an exec ends.
func (c *client) endedIn(want agboxv1.ExecState, id string) {
	c.Helper()
	if st := c.ended(id); st.GetState() != want {
		c.Errorf("%v", st)
	}
}

// ended waits for an exec's end as the clients that exist do: from its last_event_sequence on, reading it again after
// each newer event that is about it.
func (c *client) ended(id string) *agboxv1.ExecStatus {
	c.Helper()
	read := func() *agboxv1.ExecStatus {
		resp, err := c.GetExec(c.ctx(), &agboxv1.GetExecRequest{ExecId: id})
		c.must(err)
		return resp.GetExec()
	}
	st := read()
	if st.GetLastEventSequence() == 0 {
		c.Fatalf("no last_event_sequence: %v", st)
	}
	for s := c.subscribe(st.GetSandboxId(), st.GetLastEventSequence(), false); !isTerminal(st.GetState()); {
		if s.next().GetExec().GetExecId() == id {
			st = read()
		}
	}
	return st
}

func (c *client) holds(path, want string) {
	c.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		c.Errorf("%s holds %q, %v; want %q", path, got, err, want)
	}
}
