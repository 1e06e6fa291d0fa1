package validate

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

var (
	idPattern   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{2,198}[A-Za-z0-9]$`)
	namePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

const (
	maxID    = 200
	nameRule = `must be 1 to 63 lower-case ASCII letters, digits and "-", the first and last a letter or digit`
)

// SandboxID checks an ID that a client chose for a sandbox. Empty is not valid here; it means "choose one" to callers.
func SandboxID(id string) Errors { return checkID("sandbox_id", id, maxID) }

// ExecID checks an ID that a client chose for an exec.
func ExecID(id string) Errors { return checkID("exec_id", id, maxID) }

func checkID(field, id string, most int) (errs Errors) {
	broken := !idPattern.MatchString(id) || len(id) > most
	errs.addIf(broken, field, `must be 4 to %d ASCII letters, digits, "-" and "_", the first and last a letter or digit`, most)
	return errs
}

// Name checks the name of a sandbox: a DNS label.
func Name(name string) (errs Errors) {
	errs.addIf(!namePattern.MatchString(name), "name", nameRule)
	return errs
}

// Exec checks a request to run a command. An empty exec_id is valid: the daemon chooses one.
func Exec(req *agboxv1.CreateExecRequest) (errs Errors) {
	if size := proto.Size(req); size > MaxSpecBytes {
		errs.add("command", "and env_overrides are %d bytes together; the limit is %d", size, MaxSpecBytes)
		return errs
	}
	checkUnknown(&errs, "exec", req.ProtoReflect())
	errs.addIf(req.GetSandboxId() == "", "sandbox_id", "is required")
	checkCommand(&errs, "command", req.GetCommand())
	if req.GetCwd() != "" {
		checkPath(&errs, "cwd", req.GetCwd())
	}
	checkEnvs(&errs, "env_overrides", req.GetEnvOverrides())
	checkUser(&errs, "user", req.GetUser())
	if d := req.GetTimeout(); d != nil {
		errs.addIf(!lasts(d, time.Millisecond, maxTimeout), "timeout", "must be 1 ms to 10 years; leave it out for none")
	}
	checkStdin(&errs, req)
	if req.GetExecId() != "" {
		errs = append(errs, ExecID(req.GetExecId())...)
	}
	return errs
}

// Values of StdinSpec.when_gone.
const (
	StdinKeep   = "keep"
	StdinEOF    = "eof"
	StdinHangup = "hangup"
)

func checkStdin(errs *Errors, req *agboxv1.CreateExecRequest) {
	in, terminal := req.GetStdin(), req.GetTerminal()
	switch policy := in.GetWhenGone(); policy {
	case "", StdinKeep:
		errs.addIf(in.GetGrace() != nil, "stdin.grace", `is for "eof" and "hangup"`)
	case StdinEOF:
		errs.addIf(terminal != nil, "stdin.when_gone", `must be "keep" or "hangup" for an exec with a terminal`)
	case StdinHangup:
		errs.addIf(terminal == nil, "stdin.when_gone", `"hangup" needs a terminal`)
	default:
		errs.add("stdin.when_gone", `must be "keep", "eof" or "hangup", not %q`, policy)
	}
	if d := in.GetGrace(); d != nil {
		errs.addIf(!lasts(d, 0, maxTimeout), "stdin.grace", "must be 0 to 10 years")
	}
	errs.addIf(terminal.GetColumns() > 65535, "terminal.columns", "must be 0 to 65535")
	errs.addIf(terminal.GetRows() > 65535, "terminal.rows", "must be 0 to 65535")
}

// StdinGrace returns how long an exec's standard input stays open without a writer. ends is false if it stays open.
func StdinGrace(in *agboxv1.StdinSpec) (grace time.Duration, ends bool) {
	switch in.GetWhenGone() {
	case StdinEOF:
		grace = time.Minute
	case StdinHangup:
		grace = 10 * time.Minute
	default:
		return 0, false
	}
	if d := in.GetGrace(); d != nil {
		grace = d.AsDuration()
	}
	return grace, true
}

func checkCommand(errs *Errors, field string, command []string) {
	if len(command) == 0 {
		errs.add(field, "must not be empty")
		return
	}
	errs.addIf(command[0] == "", field+"[0]", "must name a program")
	for i, arg := range command {
		checkArg(errs, fmt.Sprintf("%s[%d]", field, i), arg)
	}
}

// checkArg checks what becomes one argument of a program.
func checkArg(errs *Errors, field, arg string) {
	errs.addIf(strings.Contains(arg, "\x00"), field, "must not contain a NUL byte")
	errs.addIf(len(arg) > maxArgBytes, field, "is %d bytes; the limit is %d", len(arg), maxArgBytes)
}

// Bounds of a drain. All of it is over before it is an hour old, which would end it.
const (
	maxDrainWait   = 45 * time.Minute
	maxDrainSave   = 10 * time.Minute
	maxDrainReason = 1024
)

// AgentID checks an ID that a client chose for an agent.
func AgentID(id string) Errors { return checkID("agent_id", id, maxAgentID) }

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
	errs.addIf(req.GetAgentId() == "", "agent_id", "is required")
	errs.addIf(req.GetText() == "", "text", "is required")
	checkPrompt(&errs, "text", req.GetText())
	if req.GetPromptId() != "" {
		errs = append(errs, checkID("prompt_id", req.GetPromptId(), maxID)...)
	}
	return errs
}

// Drain checks a request to drain.
func Drain(req *agboxv1.DrainRequest) (errs Errors) {
	checkUnknown(&errs, "drain", req.ProtoReflect())
	_, known := agboxv1.DrainMode_name[int32(req.GetMode())]
	errs.addIf(!known, "mode", "%d is not known", int32(req.GetMode()))
	checkUpTo(&errs, "wait", req.GetWait(), maxDrainWait)
	checkUpTo(&errs, "save_each", req.GetSaveEach(), maxDrainSave)
	checkUpTo(&errs, "save_all", req.GetSaveAll(), maxDrainSave)
	errs.addIf(len(req.GetReason()) > maxDrainReason, "reason", "is %d bytes; the limit is %d", len(req.GetReason()), maxDrainReason)
	return errs
}

func checkUpTo(errs *Errors, field string, d *durationpb.Duration, most time.Duration) {
	errs.addIf(!lasts(d, 0, most), field, "must be a duration from 0 to %dm", int(most.Minutes()))
}
