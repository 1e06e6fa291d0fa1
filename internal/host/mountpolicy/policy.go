// Package mountpolicy decides which host paths a sandbox may mount or copy, and which of agboxd's own paths are masked in it. It is
// pure: callers pass paths without symbolic links, as returned by the checks of hostfiles.
package mountpolicy

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Policy is the daemon's configuration and the places that the rules below protect. The zero Policy has no own places.
type Policy struct {
	// Own are agboxd's directories and files: data, sockets, logs, backups, configuration. Absolute, without symbolic links.
	Own []string
	// Engine are the engine's sockets and directories in addition to those in system. As Own.
	Engine []string
	// EngineData are the paths of the engine's data directory, which may differ from the one in system. As Own.
	EngineData []string
	// AllowSystem disables only the rules about the engine and the system.
	AllowSystem bool
	// Allow are the roots outside of which every source is refused; empty: no restriction. As Own.
	Allow []string
}

// Use is how a sandbox uses a path.
type Use struct {
	Writable bool
	// Tool: the path is that of a built-in tool, not of the spec. Socket: the path is a socket.
	Tool, Socket bool
}

// area is a part of the host's system.
type area struct {
	what string
	// readable: a read-only mount is accepted.
	readable bool
	paths    []string
}

// system lists the areas; everything else on a host is user data. A source that contains an area, such as "/", counts as that area. The
// first match decides.
var system = []area{
	{"the kernel's", false, []string{"/proc", "/sys"}},
	{"the host's devices", false, []string{"/dev"}},
	{"the host's kernel", false, []string{"/boot"}},
	{"the host's boot loader", false, []string{"/efi"}},
	{"where the system keeps its sockets", false, []string{"/run", "/var/run"}},
	{"the container engine's", false, []string{"/var/lib/docker", "/var/lib/containerd", "/var/lib/containers", "/var/lib/kubelet"}},
	{"the system's state", true, []string{"/var/lib", "/var/spool/cron"}},
	{"the system's configuration", true, []string{"/etc"}},
	{"the system's programs", true, []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}},
}

// userSockets are the sockets and directories of engines below /run/user/<uid>.
var userSockets = []string{"docker.sock", "docker", "dockerd-rootless", "containerd", "containerd-rootless", "podman", "buildkit", "containers"}

// Refuses returns why a sandbox may not use source, as the rest of a sentence that starts with the path; "" if it may.
func (p Policy) Refuses(source string, use Use) (why string) {
	for _, own := range p.Own {
		if Within(source, own) {
			return "lies in " + own + ", which is agboxd's own: no sandbox may use it"
		}
	}
	if len(p.Allow) > 0 && !slices.ContainsFunc(p.Allow, func(root string) bool { return Within(source, root) }) {
		return "lies outside of mounts.allow in the daemon's configuration: " + strings.Join(p.Allow, ", ")
	}
	if p.AllowSystem {
		return ""
	}
	if why := p.refusesSystem(source, use); why != "" {
		return why + "; mounts.allow_system in the daemon's configuration permits it"
	}
	return ""
}

func (p Policy) refusesSystem(source string, use Use) string {
	if source == "/" {
		return "is the whole host"
	}
	for _, e := range p.Engine {
		if Within(source, e) || Within(e, source) {
			return fmt.Sprintf("is or contains %s, which is the container engine's: access to it means root on this host", e)
		}
	}
	for _, data := range p.EngineData {
		switch {
		case Within(source, data):
			return "lies in " + data + ", the container engine's data directory"
		case Within(data, source):
			return "contains " + data + ", the container engine's data directory"
		}
	}
	if rest, ok := belowUserRuntime(source); ok {
		for _, name := range userSockets {
			if Within(rest, name) {
				return "is the container engine's"
			}
		}
		return ""
	}
	if use.Tool && use.Socket {
		return ""
	}
	for _, a := range system {
		if a.readable && !use.Writable {
			continue
		}
		for _, at := range a.paths {
			switch {
			case Within(source, at) && a.readable:
				return fmt.Sprintf("lies in %s, %s: it can be mounted only read-only", at, a.what)
			case Within(source, at):
				return fmt.Sprintf("lies in %s, %s", at, a.what)
			case Within(at, source):
				return fmt.Sprintf("contains %s, %s", at, a.what)
			}
		}
	}
	return ""
}

// belowUserRuntime returns the part of a path after /run/user/<uid>/.
func belowUserRuntime(p string) (rest string, ok bool) {
	after, ok := strings.CutPrefix(p, "/run/user/")
	if !ok {
		return "", false
	}
	uid, rest, ok := strings.Cut(after, "/")
	return rest, ok && rest != "" && uid != "" && strings.Trim(uid, "0123456789") == ""
}

// Covers returns agboxd's own paths below source, relative to it and sorted, without those below another one. Callers check
// Refuses first.
func (p Policy) Covers(source string) (below []string) {
	for _, own := range p.Own {
		if own != source && Within(own, source) {
			below = append(below, strings.TrimPrefix(strings.TrimPrefix(own, source), "/"))
		}
	}
	slices.Sort(below)
	below = slices.Compact(below)
	return slices.DeleteFunc(slices.Clone(below), func(rel string) bool {
		return slices.ContainsFunc(below, func(other string) bool { return other != rel && Within(rel, other) })
	})
}

// Between returns the directories between a source and a path below it that Covers returned, relative to the source, parents first.
func Between(rel string) (dirs []string) {
	for dir := path.Dir(rel); dir != "."; dir = path.Dir(dir) {
		dirs = append(dirs, dir)
	}
	slices.Reverse(dirs)
	return dirs
}

// Within reports whether p is dir or lies below it.
func Within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

// Aliases returns the given paths and all other paths of the same files and directories on the host, since bind mounts give one
// directory several paths. mountinfo is the content of /proc/self/mountinfo.
func Aliases(paths []string, mountinfo string) []string {
	mounts := parse(mountinfo)
	all := slices.Clone(paths)
	for _, p := range paths {
		at := -1
		for i, m := range mounts { // of two mounts on one point the later one hides the other
			if Within(p, m.point) && (at < 0 || len(m.point) >= len(mounts[at].point)) {
				at = i
			}
		}
		if at < 0 {
			continue
		}
		inside := path.Join(mounts[at].root, strings.TrimPrefix(p, mounts[at].point))
		for _, m := range mounts {
			switch {
			case m.device != mounts[at].device:
			case Within(inside, m.root):
				all = append(all, path.Join(m.point, strings.TrimPrefix(inside, m.root)))
			case Within(m.root, inside):
				all = append(all, m.point)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

type mounted struct{ device, root, point string }

func parse(mountinfo string) (all []mounted) {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(mountinfo) {
		if f := strings.Fields(line); len(f) > 4 {
			all = append(all, mounted{f[2], unescape.Replace(f[3]), unescape.Replace(f[4])})
		}
	}
	return all
}
