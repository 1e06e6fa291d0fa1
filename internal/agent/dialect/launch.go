package dialect

import (
	"slices"
	"strings"

	"github.com/agbox/agbox/internal/agent/dialect/acp"
)

// shim is the path of agbox-shim in every container; it runs the client of ACP.
const shim = "/run/agbox/bin/agbox-shim"

// LaunchParams describe how to start an incarnation.
type LaunchParams struct {
	// Command is the spec's.
	Command []string
	// SessionID with Resume is the session to resume, as reported by the decoder; otherwise the ID of a new session, which is
	// used by claude-stream-json only and must be an unused UUID. Empty: the program chooses.
	SessionID string
	Resume    bool
	// Cwd is absolute; it is passed to ACP sessions.
	Cwd string
}

// Launch returns the command line of an incarnation and the first bytes for its stdin. Flags that the command already has are
// not added. A program that can't resume, or has no SessionID, starts a new session.
func Launch(format string, p LaunchParams) (command []string, first []byte) {
	command = slices.Clone(p.Command)
	p.Resume = p.Resume && p.SessionID != ""
	switch format {
	case Claude:
		return launchClaude(command, p)
	case ACP:
		o := acp.Options{Cwd: p.Cwd}
		if p.Resume {
			o.Load = p.SessionID
		}
		return append([]string{shim, acp.Verb}, o.Args(command)...), nil
	default:
		return command, nil
	}
}

// launchClaude sends the protocol's initialize request first: the response shows that the program reads its stdin; without
// the request it writes nothing before its first prompt.
func launchClaude(command []string, p LaunchParams) ([]string, []byte) {
	if !hasFlag(command, "-p") {
		command = withFlag(command, "--print")
	}
	command = withFlag(command, "--input-format", "stream-json")
	command = withFlag(command, "--output-format", "stream-json")
	command = withFlag(command, "--verbose")
	id := claudeNew
	switch {
	case p.Resume:
		id = claudeResume
		command = append(command, "--resume", p.SessionID)
	case p.SessionID != "":
		command = append(command, "--session-id", p.SessionID)
	}
	return command, acp.Line(map[string]any{
		"type": "control_request", "request_id": id + p.SessionID, "request": map[string]string{"subtype": "initialize"},
	})
}

func hasFlag(command []string, name string) bool {
	return slices.ContainsFunc(command, func(arg string) bool {
		return arg == name || strings.HasPrefix(arg, name+"=")
	})
}

func withFlag(command []string, name string, value ...string) []string {
	if hasFlag(command, name) {
		return command
	}
	return append(append(command, name), value...)
}

// Prompt returns the line that sends the agent a prompt; nil for an unknown format.
func Prompt(format, promptID, text string) []byte {
	switch format {
	case Claude:
		return acp.Line(map[string]any{
			"type": "user", "session_id": "", "parent_tool_use_id": nil,
			"message": map[string]any{"role": "user", "content": []any{map[string]string{"type": "text", "text": text}}},
		})
	case Native, ACP:
		return acp.Line(map[string]string{"type": "prompt", "prompt_id": promptID, "text": text})
	default:
		return nil
	}
}

// Interrupt returns the line that asks the agent to interrupt its turn; nil for an unknown format.
func Interrupt(format string) []byte {
	switch format {
	case Claude:
		return acp.Line(map[string]any{
			"type": "control_request", "request_id": claudeInterrupt, "request": map[string]string{"subtype": "interrupt"},
		})
	case Native, ACP:
		return acp.Line(map[string]string{"type": "interrupt"})
	default:
		return nil
	}
}
