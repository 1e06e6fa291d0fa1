package conformance

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// snapshots has the rows of snapshots.
func snapshots(t *testing.T, c *client) {
	c.sub(t, "a snapshot outlives its sandbox, is made once, and is kept while it is in use", func(c *client) {
		id, snap := c.ready(), newID()
		create := func(of string) (*agboxv1.Snapshot, error) {
			resp, err := c.CreateSnapshot(c.ctx(), &agboxv1.CreateSnapshotRequest{SandboxId: of, SnapshotId: snap})
			return resp.GetSnapshot(), err
		}
		list := func() []*agboxv1.Snapshot {
			c.Helper()
			resp, err := c.ListSnapshots(c.ctx(), &agboxv1.ListSnapshotsRequest{SandboxId: id})
			c.must(err)
			return resp.GetSnapshots()
		}
		remove := func() error {
			_, err := c.RemoveSnapshot(c.ctx(), &agboxv1.RemoveSnapshotRequest{SnapshotId: snap})
			return err
		}
		refusedWith := func(err error, code codes.Code, reason, message string) {
			c.Helper()
			c.refused(err, refusal{code, reason, message, map[string]string{"snapshot_id": snap}})
		}
		c.Cleanup(func() { _ = remove() })
		made, err := create(id)
		c.frozen(err, id)
		if made.GetSnapshotId() != snap || made.GetSandboxId() != id || !strings.HasPrefix(made.GetImage(), "sha256:") || made.GetCreatedAt() == nil || made.GetSizeBytes() == 0 {
			c.Errorf("made: %v", made)
		}
		again, err := create(id)
		c.must(err)
		if all := list(); !proto.Equal(again, made) || len(all) != 1 || !proto.Equal(all[0], made) {
			c.Errorf("repeated: %v, listed: %v; want %v", again, all, made)
		}
		other := c.ready(func(s *spec) { s.Image = made.GetImage() })
		_, err = create(other)
		refusedWith(err, codes.AlreadyExists, "SNAPSHOT_ID_ALREADY_EXISTS", "snapshot_id "+snap+" already exists")
		c.deletes(id)
		c.await(id, deleted)
		refusedWith(remove(), codes.FailedPrecondition, "SNAPSHOT_IN_USE", "snapshot "+snap+" is in use: delete sandbox "+other+" first")
		c.deletes(other)
		c.await(other, deleted)
		c.must(remove())
		refusedWith(remove(), codes.NotFound, "SNAPSHOT_NOT_FOUND", "snapshot "+snap+" was not found")
		if all := list(); len(all) != 0 {
			c.Errorf("listed after the removal: %v", all)
		}
		_, err = create(id)
		c.refused(err, refusal{codes.FailedPrecondition, "SANDBOX_INVALID_STATE", "sandbox " + id + " is not ready, paused or stopped", map[string]string{"sandbox_id": id}})
	})
	c.sub(t, "a snapshot is named in full, of a sandbox that there is", func(c *client) {
		for _, row := range []struct {
			req            *agboxv1.CreateSnapshotRequest
			field, message string
		}{
			{&agboxv1.CreateSnapshotRequest{SnapshotId: "snap-1"}, "sandbox_id", "sandbox_id is required"},
			{&agboxv1.CreateSnapshotRequest{SandboxId: "box-1"}, "snapshot_id", "snapshot_id must be 4 to 200 ..."},
		} {
			_, err := c.CreateSnapshot(c.ctx(), row.req)
			c.refused(err, refusal{codes.InvalidArgument, "INVALID_SPEC", row.message, map[string]string{"field": row.field}})
		}
		_, err := c.RemoveSnapshot(c.ctx(), &agboxv1.RemoveSnapshotRequest{})
		c.refused(err, refusal{codes.InvalidArgument, "INVALID_SPEC", "snapshot_id is required", map[string]string{"field": "snapshot_id"}})
		id := newID()
		_, err = c.CreateSnapshot(c.ctx(), &agboxv1.CreateSnapshotRequest{SandboxId: id, SnapshotId: newID()})
		c.refused(err, refusal{codes.NotFound, "SANDBOX_NOT_FOUND", "sandbox " + id + " was not found", map[string]string{"sandbox_id": id}})
	})
}
