package conformance

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

const idRule = ` must be 4 to 200 ASCII letters, digits, "-" and "_", the first and last a letter or digit`

func ids(t *testing.T, c *client) {
	c.sub(t, "an ID that is not given is a random UUID", defaultIDs)
	c.sub(t, "IDs keep their case and may have underscores", func(c *client) {
		for _, id := range []string{"a1B2", newID() + "_X", newID() + "-" + strings.Repeat("y", 150)} {
			if id == "a1B2" {
				id = newID()[5:9] // the shortest
			}
			_, err := c.CreateSandbox(c.ctx(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &spec{Image: c.target.Image}})
			c.must(err)
			c.deleteAtEnd(id)
			c.await(id, ready)
		}
	})
	c.sub(t, "IDs that can't be names are refused", badIDs)
	c.sub(t, "an ID is never used twice, not even after a delete", func(c *client) {
		id := c.create()
		again := &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &spec{Image: c.target.Image}}
		taken := aboutSandbox(codes.AlreadyExists, "SANDBOX_ID_ALREADY_EXISTS", id, "sandbox_id %s already exists")
		_, err := c.CreateSandbox(c.ctx(), again)
		c.refused(err, taken)
		c.delete(id)
		c.await(id, deleted)
		_, err = c.CreateSandbox(c.ctx(), again)
		c.refused(err, taken)
	})
	c.sub(t, "an ID whose create was refused is free", func(c *client) {
		id := newID()
		_, err := c.CreateSandbox(c.ctx(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &spec{}})
		c.refused(err, invalid("image", "create_spec.image is required"))
		_, err = c.CreateSandbox(c.ctx(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &spec{Image: c.target.Image}})
		c.must(err)
		c.deleteAtEnd(id)
	})
	c.sub(t, "exec IDs are one namespace, forever", func(c *client) {
		one, other, id := c.ready(), c.ready(), newID()
		c.exec(one, id, "true")
		c.ended(id)
		for _, sandbox := range []string{one, other} {
			_, err := c.CreateExec(c.ctx(), &agboxv1.CreateExecRequest{SandboxId: sandbox, ExecId: id, Command: []string{"true"}})
			c.refused(err, aboutExec(codes.AlreadyExists, "EXEC_ID_ALREADY_EXISTS", id, "exec_id %s already exists"))
		}
	})
}

func defaultIDs(c *client) {
	resp, err := c.CreateSandbox(c.ctx(), &agboxv1.CreateSandboxRequest{CreateSpec: &spec{Image: c.target.Image}})
	c.must(err)
	id := resp.GetSandbox().GetSandboxId()
	c.deleteAtEnd(id)
	if u, err := uuid.Parse(id); err != nil || u.Version() != 4 {
		c.Errorf("sandbox ID %s", id)
	}
	c.await(id, ready)
	e, err := c.CreateExec(c.ctx(), &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"true"}})
	c.must(err)
	if u, err := uuid.Parse(e.GetExecId()); err != nil || u.Version() != 4 {
		c.Errorf("exec ID %s", e.GetExecId())
	}
}

func badIDs(c *client) {
	id := c.ready()
	for _, bad := range []string{"abc", "-abcd", "abcd_", "ab cd", "ab/cd", "ab.cd", "äbcd", strings.Repeat("x", 201)} {
		_, err := c.CreateSandbox(c.ctx(), &agboxv1.CreateSandboxRequest{SandboxId: bad, CreateSpec: &spec{Image: c.target.Image}})
		c.refused(err, invalid("sandbox_id", "sandbox_id"+idRule))
		_, err = c.CreateExec(c.ctx(), &agboxv1.CreateExecRequest{SandboxId: id, ExecId: bad, Command: []string{"true"}})
		c.refused(err, invalid("exec_id", "exec_id"+idRule))
	}
}
