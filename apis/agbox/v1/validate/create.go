package validate

import (
	"maps"
	"slices"

	"github.com/distribution/reference"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// MaxSpecBytes bounds the encoded size of a CreateSpec and of a CreateExecRequest.
const MaxSpecBytes = 1 << 20

// Create checks the final spec of a sandbox, after all merging, as Normalize would make it; spec is not changed. A
// spec beyond MaxSpecBytes is not looked at further.
func Create(spec *agboxv1.CreateSpec) (errs Errors) {
	if size := proto.Size(spec); size > MaxSpecBytes {
		errs.add("create_spec", "is %d bytes; the limit is %d", size, MaxSpecBytes)
		return errs
	}
	spec = Normalize(spec)
	checkUnknown(&errs, "create_spec", spec.ProtoReflect())
	checkImage(&errs, "", spec.GetImage())
	checkFiles(&errs, spec)
	checkServices(&errs, spec)
	checkLabels(&errs, "labels", spec.GetLabels())
	checkEnvs(&errs, "envs", spec.GetEnvs())
	if ttl := spec.GetIdleTtl(); ttl != nil && (ttl.CheckValid() != nil || ttl.AsDuration() < 0) {
		errs.add("idle_ttl", "must be 0 (never) or a positive duration")
	}
	checkContainer(&errs, "", spec)
	checkPrimary(&errs, spec)
	checkLifetime(&errs, spec)
	checkHostPorts(&errs, spec)
	return errs
}

// checkImage checks the image of the container whose fields begin with prefix.
func checkImage(errs *Errors, prefix, image string) {
	if image == "" && prefix == "" {
		*errs = append(*errs, Error{Field: "image", Message: "create_spec.image is required"})
		return
	}
	if image == "" {
		errs.add(prefix+"image", "is required")
		return
	}
	if _, err := reference.ParseAnyReference(image); err != nil {
		errs.add(prefix+"image", "%s is not an image reference: %v", short(image), err)
	}
}

// LabelSelector checks the selector of a bulk operation.
func LabelSelector(selector map[string]string) (errs Errors) {
	if len(selector) == 0 {
		errs.add("label_selector", "must not be empty")
	}
	return errs
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
