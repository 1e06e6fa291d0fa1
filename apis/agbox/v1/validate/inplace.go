package validate

import "google.golang.org/protobuf/reflect/protoreflect"

// effect is what a change of a field in place asks for.
type effect int

const (
	recorded effect = iota + 1 // nothing: it is read from the record when it matters
	limit                      // the limits of containers that exist
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
	"agbox.v1.CreateSpec.restart_policy": recorded,
	"agbox.v1.CreateSpec.pull_policy":    recorded,
	"agbox.v1.CreateSpec.on_log_limit":   recorded,
	"agbox.v1.CreateSpec.cpu_limit":      limit,
	"agbox.v1.CreateSpec.memory_limit":   limit,
	"agbox.v1.CreateSpec.pids_limit":     limit,

	"agbox.v1.ServiceSpec.restart_policy": recorded,
	"agbox.v1.ServiceSpec.pull_policy":    recorded,
	"agbox.v1.ServiceSpec.cpu_limit":      limit,
	"agbox.v1.ServiceSpec.memory_limit":   limit,
	"agbox.v1.ServiceSpec.pids_limit":     limit,
}

// InPlace reports whether a field of CreateSpec or ServiceSpec can change while the sandbox lives. Containers do not fix such a field,
// so no hash of what they fix contains it.
func InPlace(field protoreflect.FieldDescriptor) bool { return inPlace[field.FullName()] != 0 }
