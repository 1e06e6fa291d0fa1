package validate

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// MaxSpecBytes bounds the encoded size of a CreateSpec and of a CreateExecRequest.
const MaxSpecBytes = 1 << 20

// Create checks the final spec of a sandbox, after all merging, as Normalize would make it; spec is not changed. A
// spec beyond MaxSpecBytes is not checked further.
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
	errs.addIf(!lasts(spec.GetIdleTtl(), 0, math.MaxInt64), "idle_ttl", "must be 0 (never) or a positive duration")
	checkContainer(&errs, "", spec)
	checkPrimary(&errs, spec)
	checkTimeout(&errs, "timeout", spec.GetTimeout())
	checkWord(&errs, "on_timeout", spec.GetOnTimeout(), "stop", "pause", "delete")
	checkHostPorts(&errs, spec)
	checkNetwork(&errs, spec)
	checkInjected(&errs, spec)
	checkReadOnly(&errs, spec)
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
	errs.addIf(len(selector) == 0, "label_selector", "must not be empty")
	return errs
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// Normalize returns a copy of spec in the one form that is stored and compared: paths without double or final slashes
// and without "." parts, the protocol of each port written out, capabilities sorted, and no empty security or network. Nothing else is filled in. ".." parts stay, for
// Create to refuse: behind a symbolic link they lead elsewhere than they seem to. nil gives nil.
func Normalize(spec *agboxv1.CreateSpec) *agboxv1.CreateSpec {
	out := proto.CloneOf(spec)
	for _, m := range out.GetMounts() {
		tidy(&m.Source)
		tidy(&m.Target)
	}
	for _, c := range out.GetCopies() {
		tidy(&c.Source)
		tidy(&c.Target)
	}
	if out != nil {
		tidy(&out.WorkingDir)
		slices.Sort(out.GetSecurity().GetCapabilitiesAdd())
		if proto.Size(out.GetSecurity()) == 0 { // an empty message
			out.Security = nil
		}
		if proto.Size(out.GetNetwork()) == 0 {
			out.Network = nil
		}
	}
	writeProtocols(out.GetPorts())
	tidyVolumes(out.GetVolumes())
	tidySecrets(out.GetSecrets())
	for _, s := range slices.Concat(out.GetRequiredServices(), out.GetOptionalServices()) {
		tidy(&s.WorkingDir)
		tidyVolumes(s.GetVolumes())
		tidySecrets(s.GetSecrets())
		writeProtocols(s.GetPorts())
	}
	return out
}

func tidyVolumes(volumes []*agboxv1.VolumeSpec) {
	for _, v := range volumes {
		tidy(&v.Target)
	}
}

func tidySecrets(secrets []*agboxv1.SecretSpec) {
	for _, s := range secrets {
		tidy(&s.File)
		tidy(&s.Target)
	}
}

func writeProtocols(ports []*agboxv1.PortSpec) {
	for _, p := range ports {
		if p.GetProtocol() == "" {
			p.Protocol = "tcp"
		}
	}
}

// tidy removes what has no meaning from an absolute path.
func tidy(p *string) {
	if !strings.HasPrefix(*p, "/") {
		return
	}
	var parts []string
	for part := range strings.SplitSeq(*p, "/") {
		if part != "" && part != "." {
			parts = append(parts, part)
		}
	}
	*p = "/" + strings.Join(parts, "/")
}

// checkUnknown refuses a field that a newer client set and that this version would silently drop. One is reported for
// each message: the rest would be noise.
func checkUnknown(errs *Errors, path string, m protoreflect.Message) {
	if number, _, n := protowire.ConsumeTag(m.GetUnknown()); n > 0 {
		errs.add(path, "has field number %d, which this version of agboxd does not know", number)
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd.Kind() != protoreflect.MessageKind || fd.IsMap() {
			return true
		}
		if !fd.IsList() {
			checkUnknown(errs, fd.TextName(), v.Message())
			return true
		}
		for i := range v.List().Len() {
			checkUnknown(errs, fd.TextName(), v.List().Get(i).Message())
		}
		return true
	})
}
