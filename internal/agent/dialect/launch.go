package dialect

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/agbox/agbox/internal/agent/dialect/acp"
)

// shim is where every container has the helper that runs the client of ACP.
const shim = "/run/agbox/bin/agbox-shim"

// LaunchParams say how an incarnation begins.
type LaunchParams struct {
	// Command of the spec.
	Command []string
	// SessionID: with Resume the session to go on with, as the decoder told it; else the name of a new one, which matters to
	// claude-stream-json only and must be a UUID that was never used. Empty: the program chooses.
	SessionID string
	Resume    bool
	// Cwd is absolute; ACP sessions are told.
	Cwd string
}

// Launch returns the command line of an incarnation and what its stdin begins with. Flags that the command has already are
// not given again. A program that can't resume, or a session without a name, starts over.
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

// launchClaude asks for the initialization that every client of this protocol begins with: its answer says that the program
// reads, which otherwise says nothing before its first prompt.
func launchClaude(command []string, p LaunchParams) ([]string, []byte) {
	if !has(command, "-p") {
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
	return command, line(map[string]any{
		"type": "control_request", "request_id": id + p.SessionID, "request": map[string]string{"subtype": "initialize"},
	})
}

func has(command []string, name string) bool {
	return slices.ContainsFunc(command, func(arg string) bool {
		return arg == name || strings.HasPrefix(arg, name+"=")
	})
}

func withFlag(command []string, name string, value ...string) []string {
	if has(command, name) {
		return command
	}
	return append(append(command, name), value...)
}

// Prompt returns the line that gives the agent a prompt; nil for a format that is not known.
func Prompt(format, promptID, text string) []byte {
	switch format {
	case Claude:
		return line(map[string]any{
			"type": "user", "session_id": "", "parent_tool_use_id": nil,
			"message": map[string]any{"role": "user", "content": []any{map[string]string{"type": "text", "text": text}}},
		})
	case Native, ACP:
		return line(map[string]string{"type": "prompt", "prompt_id": promptID, "text": text})
	default:
		return nil
	}
}

// Interrupt returns the line that asks the agent to end its turn; nil for a format that is not known.
func Interrupt(format string) []byte {
	switch format {
	case Claude:
		return line(map[string]any{
			"type": "control_request", "request_id": claudeInterrupt, "request": map[string]string{"subtype": "interrupt"},
		})
	case Native, ACP:
		return line(map[string]string{"type": "interrupt"})
	default:
		return nil
	}
}

// line encodes one message. Invalid UTF-8 becomes U+FFFD, and no newline is left inside.
func line(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return nil // only strings go in
	}
	return append(b, '\n')
}
