package validate

import (
	"fmt"
	"slices"
	"strings"
)

// Tool is one of the builtin_tools: what the host has of it, given to the sandbox.
type Tool struct {
	Name  string
	Paths []ToolPath
}

// ToolPath is one mount of a tool.
type ToolPath struct {
	// Host is "~/...", below the home directory of the daemon's user, or "$SSH_AUTH_SOCK", the value of that variable.
	Host string
	// Target is absolute and clean.
	Target   string
	Writable bool
	// Optional: left out when the host does not have it, or when the variable is not set. What is not optional must be there.
	Optional bool
	// Socket: must be a socket, and is a file or a directory otherwise.
	Socket bool
}

// home is that of the user agbox in the container.
const home = "/home/agbox"

// atHome is a writable path that has the same place in both homes.
func atHome(p string) ToolPath {
	return ToolPath{Host: "~/" + p, Target: home + "/" + p, Writable: true}
}

func ifPresent(p ToolPath) ToolPath {
	p.Optional = true
	return p
}

// Tools returns the known tools; the caller may change the result.
func Tools() []Tool {
	return []Tool{
		{"claude", []ToolPath{atHome(".claude"), ifPresent(atHome(".claude.json"))}},
		{"codex", []ToolPath{atHome(".codex"), atHome(".agents")}},
		{"git", []ToolPath{
			ifPresent(ToolPath{Host: "$SSH_AUTH_SOCK", Target: "/ssh-agent", Socket: true}), // connecting needs no writable mount
			ifPresent(ToolPath{Host: "~/.config/gh", Target: home + "/.config/gh"}),
			ifPresent(atHome(".ssh/known_hosts")),
		}},
		{"uv", []ToolPath{ifPresent(atHome(".cache/uv")), ifPresent(atHome(".local/share/uv"))}},
		{"npm", []ToolPath{ifPresent(atHome(".npm"))}},
		{"apt", []ToolPath{ifPresent(ToolPath{Host: "~/.cache/agents-sandbox-apt", Target: "/var/cache/apt/archives", Writable: true})}},
		{"opencode", []ToolPath{atHome(".config/opencode"), atHome(".local/share/opencode")}},
	}
}

// tools checks the names of tools and adds their targets, also those of optional paths.
func (t *targets) tools(errs *Errors, names []string) {
	known, first := Tools(), map[string]string{}
	checkEach(errs, "builtin_tools", names, maxBuiltinListed, func(at, name string) {
		k := slices.IndexFunc(known, func(tool Tool) bool { return tool.Name == name })
		if k < 0 {
			errs.add(at, "%s is not known: write %s", short(name), toolNames(known))
			return
		}
		if other, twice := first[name]; twice {
			errs.add(at, "%s is listed as %s already", short(name), other)
			return
		}
		first[name] = at
		for _, p := range known[k].Paths {
			*t = append(*t, target{path: p.Target, owner: fmt.Sprintf("%s (%s)", at, name), field: at})
		}
	})
}

func toolNames(tools []Tool) string {
	names := make([]string, len(tools))
	for i, tool := range tools {
		names[i] = tool.Name
	}
	return strings.Join(names, ", ")
}
