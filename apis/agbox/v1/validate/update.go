package validate

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/inject"
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
		case c.field != nil && inPlace[c.field.FullName()] == delivered && c.Old == "":
			errs.add(c.Path, `can be changed in place only where there is one already: delete and recreate ("agbox apply --replace")`)
		case c.field == nil || !InPlace(c.field):
			errs.add(c.Path, `cannot be changed in place: delete and recreate ("agbox apply --replace")`)
		}
	}
	if len(before.GetSecrets()) > 0 && inject.Has(before) != inject.Has(after) { // its containers have the environment for it, or have not
		errs.add("secrets", `cannot get the first inject rule, or lose the last one, in place: delete and recreate ("agbox apply --replace")`)
	}
	slices.Sort(changed)
	slices.SortFunc(errs, func(a, b Error) int { return cmp.Compare(a.Field, b.Field) })
	return changed, limits, errs
}

// effect is what a change of a field in place asks for.
type effect int

const (
	recorded  effect = iota + 1 // nothing: it is read from the record when it matters
	limit                       // the limits of containers that exist
	delivered                   // files inside; a container of a spec without any may lack what delivers them
)

// inPlace has the fields of a spec and of its services that can change while the sandbox lives: the only table of them. Full names,
// since the timeout of a healthcheck is another field than that of a sandbox. pull_policy matters at the creation only, so a new
// value does no harm.
var inPlace = map[protoreflect.FullName]effect{
	"agbox.v1.CreateSpec.labels":         recorded,
	"agbox.v1.CreateSpec.idle_ttl":       recorded,
	"agbox.v1.CreateSpec.timeout":        recorded,
	"agbox.v1.CreateSpec.on_timeout":     recorded,
	"agbox.v1.CreateSpec.auto_resume":    recorded,
	"agbox.v1.CreateSpec.keep_stopped":   recorded,
	"agbox.v1.CreateSpec.restart_policy": recorded,
	"agbox.v1.CreateSpec.pull_policy":    recorded,
	"agbox.v1.CreateSpec.on_log_limit":   recorded,
	"agbox.v1.CreateSpec.cpu_limit":      limit,
	"agbox.v1.CreateSpec.memory_limit":   limit,
	"agbox.v1.CreateSpec.pids_limit":     limit,
	"agbox.v1.CreateSpec.secrets":        delivered,
	"agbox.v1.CreateSpec.network":        recorded,

	"agbox.v1.ServiceSpec.restart_policy": recorded,
	"agbox.v1.ServiceSpec.pull_policy":    recorded,
	"agbox.v1.ServiceSpec.cpu_limit":      limit,
	"agbox.v1.ServiceSpec.memory_limit":   limit,
	"agbox.v1.ServiceSpec.pids_limit":     limit,
	"agbox.v1.ServiceSpec.secrets":        delivered,
}

// InPlace reports whether a field of CreateSpec or ServiceSpec can change while the sandbox lives. Containers do not fix such a field,
// so no hash of what they fix contains it.
func InPlace(field protoreflect.FieldDescriptor) bool { return inPlace[field.FullName()] != 0 }
