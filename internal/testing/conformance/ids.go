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
			c.must(c.tryPlain(id, ""))
			c.await(id, ready)
		}
	})
	c.sub(t, "IDs that can't be names are refused", badIDs)
	c.sub(t, "an ID is never used twice, not even after a delete", func(c *client) {
		id := c.create()
		taken := aboutSandbox(codes.AlreadyExists, "SANDBOX_ID_ALREADY_EXISTS", id, "sandbox_id %s already exists")
		c.refused(c.tryPlain(id, ""), taken)
		c.deletes(id)
		c.refused(c.tryPlain(id, ""), taken)
	})
	c.sub(t, "an ID whose create was refused is free", func(c *client) {
		id := newID()
		_, err := c.CreateSandbox(c.ctx(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &spec{}})
		c.refused(err, invalid("image", "create_spec.image is required"))
		c.must(c.tryPlain(id, ""))
	})
	c.sub(t, "exec IDs are one namespace, forever", func(c *client) {
		one, other, id := c.ready(), c.ready(), newID()
		c.exec(one, id, "true")
		c.ended(id)
		for _, sandbox := range []string{one, other} {
			c.refused(c.tryExecID(sandbox, id, "true"), aboutExec(codes.AlreadyExists, "EXEC_ID_ALREADY_EXISTS", id, "exec_id %s already exists"))
		}
	})
}

func defaultIDs(c *client) {
	h, err := c.tryCreate(&agboxv1.CreateSandboxRequest{CreateSpec: &spec{Image: c.target.Image}})
	c.must(err)
	id := h.GetSandboxId()
	if u, err := uuid.Parse(id); err != nil || u.Version() != 4 {
		c.Errorf("sandbox ID %s", id)
	}
	c.await(id, ready)
	x := c.exec(id, "", "true")
	if u, err := uuid.Parse(x); err != nil || u.Version() != 4 {
		c.Errorf("exec ID %s", x)
	}
}

func badIDs(c *client) {
	id := c.ready()
	for _, bad := range []string{"abc", "-abcd", "abcd_", "ab cd", "ab/cd", "ab.cd", "äbcd", strings.Repeat("x", 201)} {
		c.refused(c.tryPlain(bad, ""), invalid("sandbox_id", "sandbox_id"+idRule))
		c.refused(c.tryExecID(id, bad, "true"), invalid("exec_id", "exec_id"+idRule))
	}
}
