package validate

import (
	"path"
	"slices"
	"strings"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

const (
	maxMounts        = 128
	maxCopies        = 128
	maxPatterns      = 1024
	maxPatternBytes  = 4096
	maxBuiltinListed = 64
	// maxPathBytes is the kernel's PATH_MAX without the final NUL.
	maxPathBytes = 4095
)

var (
	// ownTargets are the paths in a container that belong to agboxd. "/var/run" is a link to "/run" in most images.
	ownTargets = []string{"/run/agbox", "/var/run/agbox", "/var/log/agents-sandbox"}
	// engineFiles are put into each container by the engine when it starts, over what is there.
	engineFiles = []string{"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}
)

// checkFiles checks all that comes from the host.
func checkFiles(errs *Errors, spec *agboxv1.CreateSpec) {
	var all targets
	all.mounts(errs, spec.GetMounts())
	all.volumes(errs, "", spec.GetVolumes())
	all.tools(errs, spec.GetBuiltinTools())
	all.copies(errs, spec.GetCopies())
	all.secrets(errs, "", spec.GetSecrets(), refusedSecret)
	all.check(errs)
}

// mounts checks the mounts and adds their targets as far as they are valid.
func (t *targets) mounts(errs *Errors, mounts []*agboxv1.MountSpec) {
	checkEach(errs, "mounts", mounts, maxMounts, func(at string, m *agboxv1.MountSpec) {
		t.add(errs, m, target{owner: at}, refusedMount)
	})
}

// copies checks the copies and adds their targets as far as they are valid.
func (t *targets) copies(errs *Errors, copies []*agboxv1.CopySpec) {
	checkEach(errs, "copies", copies, maxCopies, func(at string, c *agboxv1.CopySpec) {
		t.add(errs, c, target{owner: at, copied: true}, refusedCopy)
		checkPatterns(errs, at+".exclude_patterns", c.GetExcludePatterns())
	})
}

type fromHost interface {
	GetSource() string
	GetTarget() string
}

// add checks the paths of a mount or copy and adds its target if that is valid.
func (t *targets) add(errs *Errors, given fromHost, one target, refused func(string) string) {
	checkPath(errs, one.owner+".source", given.GetSource())
	one.path, one.field = given.GetTarget(), one.owner+".target"
	if !checkPath(errs, one.field, one.path) {
		return
	}
	if why := refused(one.path); why != "" {
		errs.add(one.field, "%s %s", short(one.path), why)
		return
	}
	*t = append(*t, one)
}

func checkPatterns(errs *Errors, field string, patterns []string) {
	checkEach(errs, field, patterns, maxPatterns, func(at, p string) {
		switch {
		case strings.TrimSpace(p) == "":
			errs.add(at, "must not be empty")
		case strings.ContainsAny(p, "\x00\r\n"):
			errs.add(at, "must be one line without NUL bytes")
		case len(p) > maxPatternBytes:
			errs.add(at, "is %d bytes; the limit is %d", len(p), maxPatternBytes)
		}
	})
}

// checkPath reports whether p is an absolute path without parts that lead elsewhere than they seem to.
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

// refusedMount says why nothing can be mounted at p, or returns "".
func refusedMount(p string) string {
	switch p {
	case "/", "/dev", "/sys":
		return "cannot be mounted over: the container needs its own"
	}
	if within(p, "/proc") {
		return "cannot be mounted over: the container needs its own"
	}
	return touchesOwn(p)
}

// refusedCopy says why nothing can be copied to p, or returns "".
func refusedCopy(p string) string {
	for _, dir := range []string{"/proc", "/sys", "/dev"} {
		if within(p, dir) {
			return "cannot be copied to: the engine mounts " + dir + " when the container starts"
		}
	}
	if slices.Contains(engineFiles, p) {
		return "cannot be copied to: the engine mounts its own when the container starts"
	}
	if p == "/" {
		return "cannot be copied to: name the directories one by one"
	}
	return touchesOwn(p)
}

func touchesOwn(p string) string {
	for _, own := range ownTargets {
		if within(p, own) {
			return "lies in " + own + ", which is agboxd's own"
		}
		if within(own, p) {
			return "holds " + own + ", which is agboxd's own"
		}
	}
	return ""
}

// within reports whether p is dir or lies below it.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
