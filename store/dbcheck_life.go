package store

import (
	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/sandboxstate"
)

// lifetime checks that the desired state goes with the state, that only a pause is demoted, and that a stop has no deadline.
func (c *checker) lifetime(id string, d *storev1.Desired, state agboxv1.SandboxState) {
	run := d.GetRunState()
	pause, stop := run == storev1.RunState_RUN_STATE_PAUSE, run == storev1.RunState_RUN_STATE_STOP
	if d.GetDeadlineAt() < 0 || d.GetDeadlineFrom() < 0 || d.GetDemotedAt() < 0 {
		c.report(bucketDesired, id, "it names a time before 1970")
	}
	if d.GetDemotedAt() != 0 && !pause {
		c.report(bucketDesired, id, "it is demoted, and no pause is wanted but %s", run)
	}
	if stop && (d.GetDeadlineAt() != 0 || d.GetDeadlineSet()) {
		c.report(bucketDesired, id, "it is to be stopped, and a deadline is left")
	}
	if !sandboxstate.Allows(state, run) {
		c.report(bucketDesired, id, "it is %s, and the desired state is %s", state, run)
	}
}
