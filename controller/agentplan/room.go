package agentplan

import storev1 "github.com/agbox/agbox/apis/agbox/store/v1"

// WaitsForRoom reports whether a plan waits while the disk is full: it adds records, and no stop or delete waits for it. Unread output
// stays in its log.
func (p Plan) WaitsForRoom(r Record, w World) bool {
	switch p.Kind {
	case Read, Spawn, Claim, Summarize:
		return r.Run == storev1.AgentRun_AGENT_RUN_RUN && !w.Ending && !w.SandboxGone && !w.Draining && !w.Parking
	}
	return false
}
