package validate

import (
	"cmp"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

const (
	// MaxPromptBytes bounds a prompt, also the first one and the nudge, which become prompts.
	MaxPromptBytes = 256 << 10
	// maxAgentID leaves room in the ID of an exec, 200 characters, for the number of an incarnation.
	maxAgentID = 180

	minStartTimeout = time.Second
	maxStartTimeout = time.Hour
)

// setByDaemon are variables with which programs in a sandbox find the daemon's files: no spec may set them.
var setByDaemon = []string{"AGBOX_AGENT_ID", "AGBOX_EXEC_ID"}

// Agent checks the spec of an agent; spec is not changed. Whether its sandbox is there is the daemon's to check. A spec
// beyond MaxSpecBytes is not checked further.
func Agent(spec *agboxv1.AgentSpec) (errs Errors) {
	if size := proto.Size(spec); size > MaxSpecBytes {
		errs.add("spec", "is %d bytes; the limit is %d", size, MaxSpecBytes)
		return errs
	}
	spec = NormalizeAgent(spec)
	checkUnknown(&errs, "spec", spec.ProtoReflect())
	errs.addIf(spec.GetSandboxId() == "", "sandbox_id", "is required: the name or ID of a sandbox")
	checkCommand(&errs, "command", spec.GetCommand())
	checkEnvs(&errs, "envs", spec.GetEnvs())
	for _, key := range setByDaemon {
		_, given := spec.GetEnvs()[key]
		errs.addIf(given, keyed("envs", key), "is set by agboxd")
	}
	if spec.GetWorkingDir() != "" {
		checkPath(&errs, "working_dir", spec.GetWorkingDir())
	}
	checkWord(&errs, "format", spec.GetFormat(), "native", "claude-stream-json", "acp")
	checkWord(&errs, "ready", spec.GetReady(), "protocol", "process")
	checkWord(&errs, "desired_state", spec.GetDesiredState(), "running", "stopped")
	checkWord(&errs, "restart_policy", spec.GetRestartPolicy(), "never", "on-failure", "always")
	checkWord(&errs, "on_interrupted", spec.GetOnInterrupted(), "retry", "hold")
	fits := lasts(spec.GetStartTimeout(), minStartTimeout, maxStartTimeout)
	errs.addIf(!fits, "start_timeout", "must be a duration from %v to 1h", minStartTimeout)
	checkPrompt(&errs, "initial_prompt", spec.GetInitialPrompt())
	checkPrompt(&errs, "nudge", spec.GetNudge())
	checkOptional(&errs, "save_command", spec.GetSaveCommand())
	checkContext(&errs, spec.GetContext())
	checkSessionPaths(&errs, spec.GetSessionPaths())
	checkLabels(&errs, "labels", spec.GetLabels())
	return errs
}

// checkPrompt checks what becomes a prompt, or is empty for none.
func checkPrompt(errs *Errors, field, text string) {
	errs.addIf(len(text) > MaxPromptBytes, field, "is %d bytes; the limit is %d", len(text), MaxPromptBytes)
	errs.addIf(text != "" && strings.TrimSpace(text) == "", field, "must not be blank")
}

// checkOptional checks a command that may be left out.
func checkOptional(errs *Errors, field string, command []string) {
	if len(command) > 0 {
		checkCommand(errs, field, command)
	}
}

func checkContext(errs *Errors, c *agboxv1.AgentContextPolicy) {
	checkWord(errs, "context.mode", c.GetMode(), "auto", "inject", "none")
	errs.addIf(c.GetMaxTurns() > 500, "context.max_turns", "must be 1 to 500, or 0 for 50")
	n := c.GetMaxCharacters()
	errs.addIf(n != 0 && (n < 1000 || n > 1_000_000), "context.max_characters", "must be 1000 to 1000000, or 0 for 40000")
	checkOptional(errs, "context.summary_command", c.GetSummaryCommand())
}

const (
	// nudgeNone turns the nudge of an agent off.
	nudgeNone = "none"
	// earlyEnd is the default nudge of the formats whose programs are coding agents.
	earlyEnd = "Your process will be ended soon. Stop at the next safe point and save your work now: commit it if you are in a git " +
		"work tree, otherwise write down in a file what is done and what is not. Then finish this turn; start nothing new. You will be " +
		"asked to go on later."
)

// Nudge returns the prompt that a busy agent gets at a drain; "": none. A program that speaks native need not read its stdin
// during a turn, so native has no default.
func Nudge(spec *agboxv1.AgentSpec) string {
	switch text := spec.GetNudge(); {
	case text == nudgeNone:
		return ""
	case text == "" && (spec.GetFormat() == "claude-stream-json" || spec.GetFormat() == "acp"):
		return earlyEnd
	default:
		return text
	}
}

const (
	// sessionNone is the only session path of an agent whose sessions are not saved.
	sessionNone     = "none"
	maxSessionPaths = 16
	maxSessionPath  = 4000 // bytes; a path of Linux has 4,095, with the home directory in front
)

func checkSessionPaths(errs *Errors, paths []string) {
	errs.addIf(len(paths) > maxSessionPaths, "session_paths", "has %d entries; the limit is %d", len(paths), maxSessionPaths)
	seen := map[string]bool{}
	for i, p := range paths {
		field := fmt.Sprintf("session_paths[%d]", i)
		if p == sessionNone {
			errs.addIf(len(paths) > 1, field, "must be the only entry: none saves no session")
			continue
		}
		below, home := strings.CutPrefix(p, "~/")
		switch {
		case len(p) > maxSessionPath:
			errs.add(field, "is %d bytes; the limit is %d", len(p), maxSessionPath)
		case !home && !strings.HasPrefix(p, "/"), below == "", path.Clean(p) != p, p == "/", home && !filepath.IsLocal(below), strings.ContainsRune(p, 0):
			errs.add(field, "must be a path like ~/.tool/sessions or /data/sessions, without .. and without a / at its end")
		case seen[p]:
			errs.add(field, "%s was given before", p)
		}
		seen[p] = true
	}
}

// programSessions are where the programs of a format keep their sessions, as far as known; docs/agents.md names the versions seen. A session
// is what the program needs to resume it, without credentials and settings.
var programSessions = map[string][]string{
	"claude-stream-json": {"~/.claude/projects"},
	"acp": {
		"~/.claude/projects", "~/.codex/sessions", "~/.gemini/projects.json", "~/.gemini/tmp", "~/.local/share/opencode/opencode.db",
		"~/.local/share/opencode/opencode.db-wal", "~/.local/share/opencode/storage",
	},
}

// NamedSessions returns the default paths of an agent below which its sessions are the files with their ID in the path. These directories may be
// mounts that the programs of others use too.
func NamedSessions(spec *agboxv1.AgentSpec) []string {
	if len(spec.GetSessionPaths()) > 0 {
		return nil
	}
	return []string{"~/.claude/projects", "~/.codex/sessions"}
}

// SessionPaths returns the files and directories of an agent's sessions that are saved; nil: none. An agent that never resumes a session has
// no default.
func SessionPaths(spec *agboxv1.AgentSpec) []string {
	switch given := spec.GetSessionPaths(); {
	case len(given) == 1 && given[0] == sessionNone:
		return nil
	case len(given) > 0:
		return given
	case cmp.Or(spec.GetContext().GetMode(), "auto") != "auto":
		return nil
	}
	return programSessions[spec.GetFormat()]
}

// NormalizeAgent returns a copy of spec in the one form that is stored and compared, as Normalize. nil gives nil.
func NormalizeAgent(spec *agboxv1.AgentSpec) *agboxv1.AgentSpec {
	out := proto.CloneOf(spec)
	if out != nil {
		tidy(&out.WorkingDir)
	}
	return out
}

// AgentDefaults returns a normalized copy of spec in which every default of a scalar is written out, so that specs that mean
// the same are equal. nil gives nil.
func AgentDefaults(spec *agboxv1.AgentSpec) *agboxv1.AgentSpec {
	out := NormalizeAgent(spec)
	if out == nil {
		return nil
	}
	out.Format = cmp.Or(out.Format, "native")
	out.Ready = cmp.Or(out.Ready, "protocol")
	out.DesiredState = cmp.Or(out.DesiredState, "running")
	out.RestartPolicy = cmp.Or(out.RestartPolicy, "on-failure")
	out.OnInterrupted = cmp.Or(out.OnInterrupted, "retry")
	out.Nudge = cmp.Or(Nudge(out), nudgeNone)
	if out.SessionPaths = SessionPaths(out); len(out.SessionPaths) == 0 {
		out.SessionPaths = []string{sessionNone}
	}
	if out.StartTimeout == nil {
		out.StartTimeout = durationpb.New(time.Minute)
	}
	if out.Context == nil {
		out.Context = &agboxv1.AgentContextPolicy{}
	}
	c := out.Context
	c.Mode, c.MaxTurns, c.MaxCharacters = cmp.Or(c.Mode, "auto"), cmp.Or(c.MaxTurns, 50), cmp.Or(c.MaxCharacters, 40_000)
	return out
}

// DiffAgent returns what differs between two specs that have their defaults, in the order of the fields.
func DiffAgent(before, after *agboxv1.AgentSpec) []Change {
	var d differ
	a, b := AgentDefaults(before), AgentDefaults(after)
	if before == nil {
		a = &agboxv1.AgentSpec{}
	}
	d.message("", a.ProtoReflect(), b.ProtoReflect())
	return d.changes
}

// SubscribeAgents checks the request of a subscription to all agents.
func SubscribeAgents(req *agboxv1.SubscribeAgentsRequest) (errs Errors) {
	for i, typ := range req.GetEventTypes() {
		_, known := agboxv1.AgentEventType_name[int32(typ)]
		errs.addIf(typ == 0 || !known, fmt.Sprintf("event_types[%d]", i), "%d is not known", typ)
	}
	seen := map[string]bool{}
	for i, c := range req.GetCursors() {
		field := fmt.Sprintf("cursors[%d].agent_id", i)
		errs.addIf(c.GetAgentId() == "", field, "is required")
		errs.addIf(seen[c.GetAgentId()], field, "%s was given before", c.GetAgentId())
		seen[c.GetAgentId()] = true
	}
	return errs
}
