package conformance

import (
	"testing"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// volumes has the rows of named volumes.
func volumes(t *testing.T, c *client) {
	c.sub(t, "a volume outlives its sandbox, and is removed on request only", func(c *client) {
		name := newID()
		list := func() []*agboxv1.Volume {
			c.Helper()
			resp, err := c.ListVolumes(c.ctx(), &agboxv1.ListVolumesRequest{SandboxName: name})
			c.must(err)
			return resp.GetVolumes()
		}
		create := func() string {
			c.Helper()
			h, err := c.tryCreate(&agboxv1.CreateSandboxRequest{Name: name, CreateSpec: withVolume(c)})
			c.must(err)
			c.await(h.GetSandboxId(), ready)
			return h.GetSandboxId()
		}
		remove := func() error {
			_, err := c.RemoveVolume(c.ctx(), &agboxv1.RemoveVolumeRequest{SandboxName: name, VolumeName: "data"})
			return err
		}
		refusedWith := func(code codes.Code, reason, why string) {
			c.Helper()
			c.refused(remove(), refusal{code, reason, "volume " + name + "/data " + why, map[string]string{"sandbox_name": name, "volume_name": "data"}})
		}
		refusedWith(codes.NotFound, "VOLUME_NOT_FOUND", "was not found")
		id := create()
		if all := list(); len(all) != 1 || all[0].GetName() != "data" || all[0].GetSandboxName() != name || all[0].GetSandboxId() != id || all[0].GetCreatedAt() == nil {
			c.Errorf("listed: %v", all)
		}
		refusedWith(codes.FailedPrecondition, "VOLUME_IN_USE", "is in the spec of sandbox "+name+": delete the sandbox first")
		c.deletes(id)
		c.await(id, deleted)
		if all := list(); len(all) != 1 || all[0].GetSandboxId() != "" {
			c.Errorf("listed after the delete: %v", all)
		}
		c.must(remove())
		id = create()
		c.must(accepted(c.DeleteSandbox(c.ctx(), &agboxv1.DeleteSandboxRequest{SandboxId: id, Volumes: true})))
		c.await(id, deleted)
		if all := list(); len(all) != 0 {
			c.Errorf("listed after the delete with volumes: %v", all)
		}
	})
	c.sub(t, "a sandbox without a name has none", func(c *client) {
		_, err := c.tryCreate(&agboxv1.CreateSandboxRequest{CreateSpec: withVolume(c)})
		c.refused(err, refusal{
			codes.InvalidArgument, "INVALID_SPEC", "volumes belong to the name of a sandbox, and this one has none: give it a name",
			map[string]string{"field": "volumes"},
		})
	})
	c.sub(t, "a volume is named in full", func(c *client) {
		for _, row := range []struct {
			req            *agboxv1.RemoveVolumeRequest
			field, message string
		}{
			{&agboxv1.RemoveVolumeRequest{VolumeName: "data"}, "sandbox_name", "sandbox_name is required"},
			{&agboxv1.RemoveVolumeRequest{SandboxName: "web"}, "volume_name", "volume_name \"\" must be 1 to 63 ..."},
		} {
			_, err := c.RemoveVolume(c.ctx(), row.req)
			c.refused(err, refusal{codes.InvalidArgument, "INVALID_SPEC", row.message, map[string]string{"field": row.field}})
		}
	})
}

func withVolume(c *client) *spec {
	return &spec{Image: c.target.Image, Volumes: []*agboxv1.VolumeSpec{{Name: "data", Target: "/data"}}}
}
