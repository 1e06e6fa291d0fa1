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

// Create checks the final spec of a sandbox, after all merging. A spec beyond MaxSpecBytes is not looked at further.
func Create(spec *agboxv1.CreateSpec) (errs Errors) {
	if size := proto.Size(spec); size > MaxSpecBytes {
		errs.add("create_spec", "is %d bytes; the limit is %d", size, MaxSpecBytes)
		return errs
	}
	checkUnknown(&errs, "create_spec", spec.ProtoReflect())
	checkImage(&errs, spec.GetImage())
	checkMounts(&errs, spec.GetMounts())
	checkUnsupported(&errs, spec)
	checkLabels(&errs, "labels", spec.GetLabels())
	checkEnvs(&errs, "envs", spec.GetEnvs())
	if ttl := spec.GetIdleTtl(); ttl != nil && (ttl.CheckValid() != nil || ttl.AsDuration() < 0) {
		errs.add("idle_ttl", "must be 0 (never) or a positive duration")
	}
	return errs
}

func checkImage(errs *Errors, image string) {
	if image == "" {
		*errs = append(*errs, Error{Field: "image", Message: "create_spec.image is required"})
		return
	}
	if _, err := reference.ParseAnyReference(image); err != nil {
		errs.add("image", "%s is not an image reference: %v", short(image), err)
	}
}

// checkUnsupported refuses by name what this version would otherwise leave out silently.
func checkUnsupported(errs *Errors, spec *agboxv1.CreateSpec) {
	for _, f := range []struct {
		name string
		used bool
	}{
		{"copies", len(spec.GetCopies()) > 0},
		{"builtin_tools", len(spec.GetBuiltinTools()) > 0},
		{"required_services", len(spec.GetRequiredServices()) > 0},
		{"optional_services", len(spec.GetOptionalServices()) > 0},
	} {
		if f.used {
			errs.add(f.name, "is not supported by this version of agboxd")
		}
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
