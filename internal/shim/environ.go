package shim

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/passwd"
)

// defaultPath is the engine's default PATH, for an image that sets none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment returns the container's variables, overridden by the user's own (HOME, USER, LOGNAME) and then by those of the request.
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

// withShim appends the directory of agbox-shim to PATH, so that programs of an agent find it after all other programs.
func withShim(env []string) []string {
	for i, pair := range env {
		if strings.HasPrefix(pair, "PATH=") {
			env[i] = pair + ":" + filepath.Dir(execjournal.ContainerShim)
		}
	}
	return env
}

// engineHome reports whether HOME has a value that the engine sets for root, and thus is not the image's choice.
func engineHome(home string) bool { return home == "" || home == "/" || home == "/root" }
