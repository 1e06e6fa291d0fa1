package conformance

import (
	"testing"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// updates has the rows of what no old client knows.
func updates(t *testing.T, c *client) {
	c.sub(t, "what can change in place changes, with one event", func(c *client) {
		id := c.ready(labelled("team", "a"))
		next := &spec{Image: c.target.Image, Labels: map[string]string{"team": "b"}}
		resp := c.update(id, next, true)
		if got := resp.GetChangedFields(); len(got) != 1 || got[0] != "labels[team]" || c.get(id).GetLabels()["team"] != "a" {
			c.Errorf("dry run: %v", resp)
		}
		c.update(id, next, false)
		if h := c.get(id); h.GetLabels()["team"] != "b" || h.GetState() != ready {
			c.Errorf("%v", h)
		}
		if resp := c.update(id, next, false); len(resp.GetChangedFields()) != 0 {
			c.Errorf("the same again: %v", resp)
		}
		var seen []string
		for _, e := range c.history(id) {
			if e.GetEventType() == agboxv1.EventType_SANDBOX_SPEC_CHANGED {
				if seen = append(seen, e.GetSpecChange().GetFields()...); e.GetSandboxState() != unset {
					c.Errorf("%v", e)
				}
			}
		}
		if len(seen) != 1 || seen[0] != "labels[team]" {
			c.Errorf("changes: %q", seen)
		}
	})
	c.sub(t, "what can't is refused by name, and nothing is changed", func(c *client) {
		id := c.ready()
		_, err := c.UpdateSandbox(c.ctx(), &agboxv1.UpdateSandboxRequest{SandboxId: id, CreateSpec: &spec{
			Image: "other:1", Envs: map[string]string{"A": "b"}, Labels: map[string]string{"team": "b"},
		}})
		fields := infoOfError(err).GetMetadata()["fields"]
		if fields != "envs[A],image" && fields != "envs,image" {
			c.Errorf("fields are %q", fields)
		}
		c.refused(err, refusal{
			codes.FailedPrecondition, "SANDBOX_FIELD_IMMUTABLE", "...", map[string]string{"sandbox_id": id, "fields": fields},
		})
		if h := c.get(id); len(h.GetLabels()) != 0 || h.GetImage() != c.target.Image {
			c.Errorf("%v", h)
		}
	})
}

// mainProcesses has the rows of spec.command.
func mainProcesses(t *testing.T, c *client) {
	c.sub(t, "its end is the end of the sandbox", func(c *client) {
		id := c.create(func(s *spec) { s.Command = []string{"sh", "-c", "sleep 1; exit 3"} })
		c.failsWith(id, "CONTAINER_DIED", "3")
	})
	c.sub(t, "a restart_policy brings it back, with an event", func(c *client) {
		id := c.create(func(s *spec) {
			s.Command, s.RestartPolicy = []string{"sh", "-c", "sleep 1; exit 3"}, "on-failure"
		})
		list := c.subscribe(id, 0, false).until(agboxv1.EventType_SANDBOX_RESTARTED)
		if got := row(list[len(list)-1]); got != "RESTARTED READY reason=restart_policy" {
			c.Errorf("%s", got)
		}
		if h := c.get(id); h.GetRestarts() == 0 || h.GetErrorCode() != "" {
			c.Errorf("%v", h)
		}
		c.must(c.tryStop(id))
		c.await(id, stopped) // a requested stop beats the policy
	})
	c.sub(t, "it is stopped and resumed with the sandbox", func(c *client) {
		id := c.ready(func(s *spec) { s.Command = []string{"sleep", "3600"} })
		c.stops(id)
		c.resumes(id)
		c.rows(c.history(id), rowAccepted, rowPreparing, rowReady, rowToStop, rowStopped, rowAccepted, rowReady)
	})
}

func (c *client) update(id string, next *spec, dryRun bool) *agboxv1.UpdateSandboxResponse {
	c.Helper()
	resp, err := c.UpdateSandbox(c.ctx(), &agboxv1.UpdateSandboxRequest{SandboxId: id, CreateSpec: next, DryRun: dryRun})
	c.must(err)
	return resp
}
