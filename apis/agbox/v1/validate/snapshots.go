package validate

import agboxv1 "github.com/agbox/agbox/apis/agbox/v1"

// CreateSnapshot checks a request to make a snapshot.
func CreateSnapshot(req *agboxv1.CreateSnapshotRequest) (errs Errors) {
	errs.addIf(req.GetSandboxId() == "", "sandbox_id", "is required")
	return append(errs, checkID("snapshot_id", req.GetSnapshotId(), maxID)...)
}

// RemoveSnapshot checks a request to remove a snapshot.
func RemoveSnapshot(req *agboxv1.RemoveSnapshotRequest) (errs Errors) {
	errs.addIf(req.GetSnapshotId() == "", "snapshot_id", "is required")
	return errs
}
