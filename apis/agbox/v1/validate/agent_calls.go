package validate

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Bounds of a drain. All of it is over before it is an hour old, which would end it.
const (
	maxDrainWait   = 45 * time.Minute
	maxDrainSave   = 10 * time.Minute
	maxDrainReason = 1024
)

// AgentID checks an ID that a client chose for an agent.
func AgentID(id string) (errs Errors) {
	if !idPattern.MatchString(id) || len(id) > maxAgentID {
		errs.add("agent_id", `must be 4 to %d ASCII letters, digits, "-" and "_", the first and last a letter or digit`, maxAgentID)
	}
	return errs
}

// CreateAgent checks a request for an agent. An empty agent_id or name is valid.
func CreateAgent(req *agboxv1.CreateAgentRequest) (errs Errors) {
	if req.GetAgentId() != "" {
		errs = append(errs, AgentID(req.GetAgentId())...)
	}
	if req.GetName() != "" {
		errs = append(errs, Name(req.GetName())...)
	}
	if req.GetSpec() == nil {
		errs.add("spec", "is required")
		return errs
	}
	return append(errs, Agent(req.GetSpec())...)
}

// PromptAgent checks a prompt. An empty prompt_id is valid: the daemon chooses one.
func PromptAgent(req *agboxv1.PromptAgentRequest) (errs Errors) {
	checkUnknown(&errs, "prompt", req.ProtoReflect())
	if req.GetAgentId() == "" {
		errs.add("agent_id", "is required")
	}
	if req.GetText() == "" {
		errs.add("text", "is required")
	}
	checkPrompt(&errs, "text", req.GetText())
	if req.GetPromptId() != "" {
		errs = append(errs, checkID("prompt_id", req.GetPromptId())...)
	}
	return errs
}

// Drain checks a request to drain.
func Drain(req *agboxv1.DrainRequest) (errs Errors) {
	checkUnknown(&errs, "drain", req.ProtoReflect())
	if _, known := agboxv1.DrainMode_name[int32(req.GetMode())]; !known {
		errs.add("mode", "%d is not known", int32(req.GetMode()))
	}
	checkUpTo(&errs, "wait", req.GetWait(), maxDrainWait)
	checkUpTo(&errs, "save_each", req.GetSaveEach(), maxDrainSave)
	checkUpTo(&errs, "save_all", req.GetSaveAll(), maxDrainSave)
	if len(req.GetReason()) > maxDrainReason {
		errs.add("reason", "is %d bytes; the limit is %d", len(req.GetReason()), maxDrainReason)
	}
	return errs
}

func checkUpTo(errs *Errors, field string, d *durationpb.Duration, most time.Duration) {
	if d != nil && (d.CheckValid() != nil || d.AsDuration() < 0 || d.AsDuration() > most) {
		errs.add(field, "must be a duration from 0 to %dm", int(most.Minutes()))
	}
}
