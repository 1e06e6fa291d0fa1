package server

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/internal/host/hostfiles"
	"github.com/agbox/agbox/internal/host/mountpolicy"
	"github.com/agbox/agbox/store"
)

// given is one host path that a sandbox has as a mount.
type given struct {
	field, source, target string
	use                   mountpolicy.Use
}

// mountsOf are the mounts of a spec and of its tools.
func mountsOf(spec *agboxv1.CreateSpec, tools []*storev1.ToolMount) (all []given) {
	for i, m := range spec.GetMounts() {
		all = append(all, given{
			fmt.Sprintf("mounts[%d].source", i), m.GetSource(), m.GetTarget(), mountpolicy.Use{Writable: m.GetWritable()},
		})
	}
	for _, m := range tools {
		use := mountpolicy.Use{Tool: true, Writable: m.GetWritable(), Socket: isToolSocket(m.GetTarget())}
		field := fmt.Sprintf("builtin_tools[%d]", slices.Index(spec.GetBuiltinTools(), m.GetTool()))
		all = append(all, given{field, m.GetSource(), m.GetTarget(), use})
	}
	return all
}

func isToolSocket(target string) bool {
	return slices.ContainsFunc(validate.Tools(), func(t validate.Tool) bool {
		return slices.ContainsFunc(t.Paths, func(p validate.ToolPath) bool { return p.Socket && p.Target == target })
	})
}

// hidden are the mounts that hide agboxd's own paths in the mounts of a sandbox.
type hidden struct {
	covers []*storev1.Cover
	pins   []*storev1.Pin
}

// judgeMounts returns the mounts that the policy refuses, and what hides agboxd's own paths in the others.
func judgeMounts(policy mountpolicy.Policy, mounts []given) (h hidden, broken validate.Errors) {
	for _, m := range mounts {
		why := policy.Refuses(m.source, m.use)
		for _, rel := range policy.Covers(m.source) {
			if why == "" {
				why = h.hide(m, rel, mounts)
			}
		}
		if why != "" {
			broken = append(broken, validate.Error{Field: m.field, Message: fmt.Sprintf("%s %q %s", m.field, m.source, why)})
		}
	}
	slices.SortFunc(h.covers, func(a, b *storev1.Cover) int { return strings.Compare(a.GetTarget(), b.GetTarget()) })
	slices.SortFunc(h.pins, func(a, b *storev1.Pin) int { return strings.Compare(a.GetTarget(), b.GetTarget()) })
	h.pins = slices.CompactFunc(h.pins, func(a, b *storev1.Pin) bool { return a.GetTarget() == b.GetTarget() })
	return h, broken
}

// hide hides agboxd's own path rel below the source of m, and returns why it can't. A missing path would be visible once it exists. A path
// that lies below another mount is hidden by that one.
func (h *hidden) hide(m given, rel string, mounts []given) (why string) {
	shadowed := func(target string) bool {
		return slices.ContainsFunc(mounts, func(o given) bool {
			return o.target != m.target && mountpolicy.Within(o.target, m.target) && mountpolicy.Within(target, o.target)
		})
	}
	source, target := path.Join(m.source, rel), path.Join(m.target, rel)
	info, err := os.Lstat(source)
	if err != nil {
		return fmt.Sprintf("contains %s, which is agboxd's own and can't be covered (%v): create it, or restart agboxd", source, err)
	}
	if !shadowed(target) {
		h.covers = append(h.covers, &storev1.Cover{Source: source, Target: target, File: !info.IsDir()})
	}
	if !m.use.Writable {
		return ""
	}
	for _, dir := range mountpolicy.Between(rel) {
		if target := path.Join(m.target, dir); !shadowed(target) {
			h.pins = append(h.pins, &storev1.Pin{Source: path.Join(m.source, dir), Target: target})
		}
	}
	return ""
}

// judgeCopies applies the same policy to copies, which read the source with the daemon's rights, like a read-only mount.
func judgeCopies(policy mountpolicy.Policy, copies []*agboxv1.CopySpec) (broken validate.Errors) {
	for i, c := range copies {
		field := fmt.Sprintf("copies[%d].source", i)
		why := policy.Refuses(c.GetSource(), mountpolicy.Use{})
		for _, rel := range policy.Covers(c.GetSource()) {
			if why == "" && !hostfiles.Excluded(c.GetExcludePatterns(), rel) {
				why = fmt.Sprintf(`holds %s, which is agboxd's own: exclude it with the pattern "/%s"`, path.Join(c.GetSource(), rel), rel)
			}
		}
		if why != "" {
			broken = append(broken, validate.Error{Field: field, Message: fmt.Sprintf("%s %q %s", field, c.GetSource(), why)})
		}
	}
	return broken
}

// warnings lists the mounts of a sandbox that would be refused or covered if it were created now. Its containers stay as they are.
func (s *handles) warnings(sb store.Sandbox) (all []string) {
	mounts := mountsOf(sb.Spec, sb.Desired.GetToolMounts())
	if len(mounts) == 0 {
		return nil
	}
	now, broken := judgeMounts(s.rules().Mounts, mounts)
	for _, b := range broken {
		all = append(all, b.Message+"; this sandbox was accepted earlier and keeps it")
	}
	had := sb.Desired.GetConfinement()
	for _, c := range now.covers {
		same := func(had *storev1.Cover) bool { return had.GetTarget() == c.GetTarget() }
		if !slices.ContainsFunc(had.GetCovers(), same) {
			all = append(all, fmt.Sprintf("%s, which is agboxd's own, is seen at %s: a new sandbox has it covered", c.GetSource(), c.GetTarget()))
		}
	}
	for _, pin := range now.pins {
		same := func(had *storev1.Pin) bool { return had.GetTarget() == pin.GetTarget() }
		if !slices.ContainsFunc(had.GetPins(), same) {
			all = append(all, fmt.Sprintf("%s, which contains agboxd's own, can be moved at %s: a new sandbox can't move it", pin.GetSource(), pin.GetTarget()))
		}
	}
	return all
}
