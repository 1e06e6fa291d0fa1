package hostfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

// ResolveTools resolves the host paths of built-in tools once, when a spec is accepted: the sandbox keeps the result, with every
// symbolic link resolved (a dot directory may be a link into a repository of dotfiles); later, Verify checks that no link
// was put into those paths. Optional paths that do not exist on this host are left out. home is the home
// directory of the daemon's user, getenv its environment. All problems are returned, with field "builtin_tools[i]".
func ResolveTools(names []string, home string, getenv func(string) string) (mounts []*storev1.ToolMount, broken validate.Errors) {
	known := validate.Tools()
	for i, name := range names {
		field := fmt.Sprintf("builtin_tools[%d]", i)
		k := slices.IndexFunc(known, func(t validate.Tool) bool { return t.Name == name })
		if k < 0 {
			broken = append(broken, validate.Error{Field: field, Message: fmt.Sprintf("%s %q is not a known tool", field, name)})
			continue
		}
		for _, p := range known[k].Paths {
			m, why := resolveTool(name, p, home, getenv)
			if why != "" {
				broken = append(broken, validate.Error{Field: field, Message: fmt.Sprintf("%s: the tool %q %s", field, name, why)})
			} else if m != nil {
				mounts = append(mounts, m)
			}
		}
	}
	return mounts, broken
}

// resolveTool returns neither a mount nor a reason for an optional path that does not exist.
func resolveTool(tool string, p validate.ToolPath, home string, getenv func(string) string) (m *storev1.ToolMount, why string) {
	host, why := expand(p, home, getenv)
	if host == "" {
		return nil, why
	}
	source, err := filepath.EvalSymlinks(host)
	if p.Optional && errors.Is(err, fs.ErrNotExist) {
		return nil, ""
	}
	if err != nil {
		return nil, fmt.Sprintf("needs %s, but %s %s; %s", p.Host, host, unreadable(err), wayOut(tool, p))
	}
	accept, kinds := fileOrDir, "file or directory"
	if p.Socket {
		accept, kinds = func(mode uint32) bool { return isType(mode, unix.S_IFSOCK) }, "socket"
	}
	if why := refused(source, accept, kinds); why != "" {
		return nil, fmt.Sprintf("needs %s, but %s %s; %s", p.Host, host, why, wayOut(tool, p))
	}
	return &storev1.ToolMount{Tool: tool, Source: source, Target: p.Target, Writable: p.Writable}, ""
}

func wayOut(tool string, p validate.ToolPath) string {
	if p.Socket {
		return fmt.Sprintf("start an SSH agent and the daemon with its SSH_AUTH_SOCK, or leave %q out", tool)
	}
	return fmt.Sprintf("create it, or leave %q out", tool)
}

// expand returns the absolute host path of "~/..." or "$NAME"; neither a path nor a reason for an optional variable that is not set.
func expand(p validate.ToolPath, home string, getenv func(string) string) (path, why string) {
	host := p.Host
	if name, ok := strings.CutPrefix(host, "$"); ok {
		value := getenv(name)
		if value == "" && p.Optional {
			return "", ""
		}
		if value == "" {
			return "", fmt.Sprintf("needs %s, which is not set in the daemon's environment; set it there, or leave the tool out", host)
		}
		return absolute(value, fmt.Sprintf("needs an absolute path in %s, which is %q", host, value))
	}
	if home == "" {
		return "", fmt.Sprintf("needs %s, but the home directory of the daemon's user is unknown; set HOME for the daemon", host)
	}
	return absolute(filepath.Join(home, strings.TrimPrefix(host, "~")), fmt.Sprintf("needs %s, but the daemon's HOME %q is not absolute", host, home))
}

func absolute(path, otherwise string) (string, string) {
	if !filepath.IsAbs(path) {
		return "", otherwise
	}
	return filepath.Clean(path), ""
}
