package validate

import (
	"cmp"
	"slices"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Update compares the spec that a sandbox has with the one that it should have; both are normalized first, and after
// must have passed Create. changed has the paths that differ, sorted; limits says whether a limit of a container is
// among them. errs has one entry for each path that needs a new sandbox; nothing may be changed then.
func Update(before, after *agboxv1.CreateSpec) (changed []string, limits bool, errs Errors) {
	for _, c := range Diff(before, after) {
		changed = append(changed, c.Path)
		switch {
		case c.field != nil && inPlace[c.field.FullName()] == limit:
			limits = true
		case c.field == nil || !InPlace(c.field):
			errs.add(c.Path, `cannot be changed in place: delete and recreate ("agbox apply --replace")`)
		}
	}
	slices.Sort(changed)
	slices.SortFunc(errs, func(a, b Error) int { return cmp.Compare(a.Field, b.Field) })
	return changed, limits, errs
}
