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

// judgeMounts returns the mounts that the policy refuses, and the covers of the others.
func judgeMounts(policy mountpolicy.Policy, mounts []given) (covers []*storev1.Cover, broken validate.Errors) {
	for _, m := range mounts {
		if why := policy.Refuses(m.source, m.use); why != "" {
			broken = append(broken, validate.Error{Field: m.field, Message: fmt.Sprintf("%s %q %s", m.field, m.source, why)})
			continue
		}
		covers = append(covers, coversOf(policy, m)...)
	}
	slices.SortFunc(covers, func(a, b *storev1.Cover) int { return strings.Compare(a.GetTarget(), b.GetTarget()) })
	return covers, broken
}

// coversOf returns the covers of a mount. A path that does not exist needs none.
func coversOf(policy mountpolicy.Policy, m given) (covers []*storev1.Cover) {
	for _, rel := range policy.Covers(m.source) {
		source := path.Join(m.source, rel)
		info, err := os.Lstat(source)
		if err != nil {
			continue
		}
		covers = append(covers, &storev1.Cover{Source: source, Target: path.Join(m.target, rel), File: !info.IsDir()})
	}
	return covers
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
func (s *Server) warnings(sb store.Sandbox) (all []string) {
	mounts := mountsOf(sb.Spec, sb.Desired.GetToolMounts())
	if len(mounts) == 0 {
		return nil
	}
	covers, broken := judgeMounts(s.deps.Rules().Mounts, mounts)
	for _, b := range broken {
		all = append(all, b.Message+"; this sandbox was accepted earlier and keeps it")
	}
	for _, c := range covers {
		has := func(had *storev1.Cover) bool { return had.GetTarget() == c.GetTarget() }
		if !slices.ContainsFunc(sb.Desired.GetConfinement().GetCovers(), has) {
			all = append(all, fmt.Sprintf("%s, which is agboxd's own, is seen at %s: a new sandbox has it covered", c.GetSource(), c.GetTarget()))
		}
	}
	return all
}
