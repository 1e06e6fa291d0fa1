package validate

import (
	"fmt"
	"path"
	"strings"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

const (
	maxMounts = 128
	// maxPathBytes is the kernel's PATH_MAX without the final NUL.
	maxPathBytes = 4095
)

// ownTargets are the paths in a container that belong to agboxd. "/var/run" is a link to "/run" in most images.
var ownTargets = []string{"/run/agbox", "/var/run/agbox", "/var/log/agents-sandbox"}

func checkMounts(errs *Errors, mounts []*agboxv1.MountSpec) {
	if len(mounts) > maxMounts {
		errs.add("mounts", "has %d entries; the limit is %d", len(mounts), maxMounts)
		return
	}
	first := map[string]int{}
	for i, m := range mounts {
		at := fmt.Sprintf("mounts[%d]", i)
		checkPath(errs, at+".source", m.GetSource())
		if !checkPath(errs, at+".target", m.GetTarget()) {
			continue
		}
		if why := refusedTarget(m.GetTarget()); why != "" {
			errs.add(at+".target", "%s %s", short(m.GetTarget()), why)
		}
		if j, twice := first[m.GetTarget()]; twice {
			errs.add(at+".target", "%s is the target of mounts[%d] already", short(m.GetTarget()), j)
			continue
		}
		first[m.GetTarget()] = i
	}
}

// checkPath reports whether p is an absolute, clean path.
func checkPath(errs *Errors, field, p string) bool {
	before := len(*errs)
	switch {
	case p == "":
		errs.add(field, "is required")
	case !strings.HasPrefix(p, "/"):
		errs.add(field, "must be an absolute path")
	case strings.ContainsFunc(p, isControl):
		errs.add(field, "must not contain control characters")
	case len(p) > maxPathBytes:
		errs.add(field, "is %d bytes; the limit is %d", len(p), maxPathBytes)
	case path.Clean(p) != p:
		errs.add(field, `must be a clean path, without "." and ".." parts, double or final slashes: write %s`, short(path.Clean(p)))
	}
	return len(*errs) == before
}

// refusedTarget says why nothing can be mounted at target, or returns "".
func refusedTarget(target string) string {
	switch target {
	case "/", "/dev", "/sys":
		return "cannot be mounted over: the container needs its own"
	}
	if within(target, "/proc") {
		return "cannot be mounted over: the container needs its own"
	}
	for _, own := range ownTargets {
		if within(target, own) {
			return "lies in " + own + ", which is agboxd's own"
		}
		if within(own, target) {
			return "would hide " + own + ", which is agboxd's own"
		}
	}
	return ""
}

// within reports whether p is dir or lies below it.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
