// Package mountpolicy decides which paths of the host a sandbox may have, and what of agboxd's own is covered in it. It looks at
// nothing: paths are given without symbolic links, as the checks of hostfiles leave them.
package mountpolicy

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Policy is what the daemon's configuration and its places make of the rules below. The zero Policy knows no places of its own.
type Policy struct {
	// Own are agboxd's directories and files: data, sockets, logs, backups, configuration. Absolute, without symbolic links.
	Own []string
	// Engine are the engine's sockets and directories beside those of the table. As Own.
	Engine []string
	// EngineData is where the engine keeps its data, if elsewhere than the table says: nothing below it is given. As Own.
	EngineData string
	// AllowSystem lifts the rules about the engine and the system, and no other.
	AllowSystem bool
	// Allow are the roots outside of which nothing is given; empty: no such bound. As Own.
	Allow []string
}

// Use is how a sandbox wants to have a path.
type Use struct {
	Writable bool
	// Tool: a built-in tool names it, and not the spec. Socket: it is a socket.
	Tool, Socket bool
}

// area is a part of the host that is the system's.
type area struct {
	path string
	// readable: may be had read-only.
	readable bool
	what     string
}

// system is complete in the sense that what is not below one of these is users' data. "/" and what holds an area count as the area.
var system = []area{
	{"/proc", false, "the kernel's"},
	{"/sys", false, "the kernel's"},
	{"/dev", false, "the host's devices"},
	{"/boot", false, "the host's kernel"},
	{"/efi", false, "the host's boot loader"},
	{"/run", false, "where sockets of the system are"},
	{"/var/run", false, "where sockets of the system are"},
	{"/var/lib/docker", false, "the container engine's"},
	{"/var/lib/containerd", false, "the container engine's"},
	{"/var/lib/containers", false, "the container engine's"},
	{"/var/lib/kubelet", false, "the container engine's"},
	{"/var/lib", true, "the system's state"},
	{"/var/spool/cron", true, "the system's state"},
	{"/etc", true, "the system's configuration"},
	{"/usr", true, "the system's programs"},
	{"/bin", true, "the system's programs"},
	{"/sbin", true, "the system's programs"},
	{"/lib", true, "the system's programs"},
	{"/lib32", true, "the system's programs"},
	{"/lib64", true, "the system's programs"},
	{"/libx32", true, "the system's programs"},
}

// userSockets are engines' below /run/user/<uid>.
var userSockets = []string{"docker.sock", "docker", "dockerd-rootless", "containerd", "containerd-rootless", "podman", "buildkit", "containers"}

// Refuses says why a sandbox may not have source, as the end of a sentence that begins with the path, or returns "".
func (p Policy) Refuses(source string, use Use) (why string) {
	for _, own := range p.Own {
		if within(source, own) {
			return "lies in " + own + ", which is agboxd's own: it is never given to a sandbox"
		}
	}
	if len(p.Allow) > 0 && !slices.ContainsFunc(p.Allow, func(root string) bool { return within(source, root) }) {
		return "lies outside of mounts.allow of the daemon's configuration: " + strings.Join(p.Allow, ", ")
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
		if within(source, e) || within(e, source) {
			return fmt.Sprintf("is, or holds, %s, which is the container engine's: it makes root on this host", e)
		}
	}
	if p.EngineData != "" && within(source, p.EngineData) {
		return "lies in " + p.EngineData + ", where the container engine keeps its data"
	}
	if rest, ok := belowUserRuntime(source); ok {
		for _, name := range userSockets {
			if within(rest, name) {
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
		switch {
		case within(source, a.path) && a.readable:
			return fmt.Sprintf("lies in %s, %s: only read-only", a.path, a.what)
		case within(source, a.path):
			return fmt.Sprintf("lies in %s, %s", a.path, a.what)
		case within(a.path, source):
			return fmt.Sprintf("holds %s, %s", a.path, a.what)
		}
	}
	return ""
}

// belowUserRuntime returns the rest of a path strictly below /run/user/<uid>.
func belowUserRuntime(p string) (rest string, ok bool) {
	after, ok := strings.CutPrefix(p, "/run/user/")
	if !ok {
		return "", false
	}
	uid, rest, ok := strings.Cut(after, "/")
	return rest, ok && rest != "" && uid != "" && strings.Trim(uid, "0123456789") == ""
}

// Covers returns the paths below source, relative to it, that are agboxd's own, without those that lie below another one: sorted.
// A source that Refuses refuses has none.
func (p Policy) Covers(source string) (below []string) {
	for _, own := range p.Own {
		if own != source && within(own, source) {
			below = append(below, strings.TrimPrefix(strings.TrimPrefix(own, source), "/"))
		}
	}
	slices.Sort(below)
	below = slices.Compact(below)
	return slices.DeleteFunc(slices.Clone(below), func(rel string) bool {
		return slices.ContainsFunc(below, func(other string) bool { return other != rel && within(rel, other) })
	})
}

// within reports whether p is dir or lies below it.
func within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

// Aliases returns all paths under which what one of the given paths names is seen on the host, those paths included. A directory may
// be mounted at several places: what lies at one of them lies at the others too. mountinfo is the text of /proc/self/mountinfo.
func Aliases(paths []string, mountinfo string) []string {
	mounts := parse(mountinfo)
	all := slices.Clone(paths)
	for _, p := range paths {
		at := -1
		for i, m := range mounts { // of two at one place the later one is seen
			if within(p, m.point) && (at < 0 || len(m.point) >= len(mounts[at].point)) {
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
			case within(inside, m.root):
				all = append(all, path.Join(m.point, strings.TrimPrefix(inside, m.root)))
			case within(m.root, inside):
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
