package shim

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/passwd"
)

// defaultPath is the engine's, for an image that sets none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment lays the user's own variables and then the request's over the container's.
func environment(container []string, who passwd.Identity, request map[string]string) []string {
	env := make(map[string]string)
	for _, pair := range container {
		if k, v, ok := strings.Cut(pair, "="); ok && k != "" {
			env[k] = v
		}
	}
	if env["PATH"] == "" {
		env["PATH"] = defaultPath
	}
	if engineHome(env["HOME"]) {
		env["HOME"] = who.Home
	}
	if env["HOME"] == "" {
		env["HOME"] = "/"
	}
	if who.Name != "" {
		env["USER"], env["LOGNAME"] = who.Name, who.Name
	}
	maps.Copy(env, request)
	list := make([]string, 0, len(env))
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return list
}

// withShim lets programs of an agent find us, after all that they find anyway.
func withShim(env []string) []string {
	for i, pair := range env {
		if strings.HasPrefix(pair, "PATH=") {
			env[i] = pair + ":" + filepath.Dir(execjournal.ContainerShim)
		}
	}
	return env
}

// engineHome tells whether HOME is what the engine gave PID 1 for being root, and so no choice of the image's.
func engineHome(home string) bool { return home == "" || home == "/" || home == "/root" }
