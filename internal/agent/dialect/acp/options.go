package acp

import (
	"errors"
	"strings"
)

// Verb is the name of the shim's command that runs a client.
const Verb = "acp"

// Options describe the session that the client requests.
type Options struct {
	// Cwd is the session's working directory. The protocol requires an absolute path; the caller replaces an empty one.
	Cwd string
	// Load is the session to resume. Empty: a new one.
	Load string
}

// Args returns the arguments after Verb to run command under a client.
func (o Options) Args(command []string) []string {
	var args []string
	if o.Cwd != "" {
		args = append(args, "--cwd="+o.Cwd)
	}
	if o.Load != "" {
		args = append(args, "--load="+o.Load)
	}
	return append(append(args, "--"), command...)
}

// ParseArgs is the reverse of Args.
func ParseArgs(args []string) (Options, []string, error) {
	var o Options
	for i, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "--cwd":
			o.Cwd = value
		case "--load":
			o.Load = value
		case "--":
			if i+1 == len(args) || arg != "--" {
				return o, nil, errors.New("no command")
			}
			return o, args[i+1:], nil
		default:
			return o, nil, errors.New("unknown argument " + arg)
		}
	}
	return o, nil, errors.New("no command")
}
