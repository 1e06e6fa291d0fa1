package manifest_test

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// drawSpec draws a spec with any of its fields set, according to the descriptor, so it includes new fields.
func drawSpec(t *rapid.T, label string) *agboxv1.CreateSpec {
	spec := &agboxv1.CreateSpec{}
	drawMessage(t, label, spec.ProtoReflect())
	for i, list := range [][]*agboxv1.ServiceSpec{spec.GetRequiredServices(), spec.GetOptionalServices()} {
		for j, s := range list {
			s.Name = fmt.Sprintf("%s-%d-%d", s.GetName(), i, j) // names are unique
		}
	}
	for _, volumes := range volumesOf(spec) {
		for i, v := range volumes {
			v.Name = fmt.Sprintf("%s-%d", v.GetName(), i)
		}
	}
	for _, secrets := range secretsOf(spec) {
		for i, s := range secrets {
			s.Name, s.File = fmt.Sprintf("%s-%d", s.GetName(), i), strings.TrimLeft(s.GetFile(), "~")
		}
	}
	for _, m := range spec.GetMounts() {
		m.Source = strings.TrimLeft(m.GetSource(), "~") // "~" would be expanded
	}
	for _, c := range spec.GetCopies() {
		c.Source = strings.TrimLeft(c.GetSource(), "~")
	}
	return spec
}

func secretsOf(spec *agboxv1.CreateSpec) [][]*agboxv1.SecretSpec {
	all := [][]*agboxv1.SecretSpec{spec.GetSecrets()}
	for _, s := range slices.Concat(spec.GetRequiredServices(), spec.GetOptionalServices()) {
		all = append(all, s.GetSecrets())
	}
	return all
}

func volumesOf(spec *agboxv1.CreateSpec) [][]*agboxv1.VolumeSpec {
	all := [][]*agboxv1.VolumeSpec{spec.GetVolumes()}
	for _, s := range slices.Concat(spec.GetRequiredServices(), spec.GetOptionalServices()) {
		all = append(all, s.GetVolumes())
	}
	return all
}

func drawMessage(t *rapid.T, label string, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		at := label + "." + fd.TextName()
		if !rapid.Bool().Draw(t, at+"?") {
			continue
		}
		switch {
		case fd.IsMap():
			for _, key := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "c", "1", "true", ""}), rapid.ID).Draw(t, at) {
				m.Mutable(fd).Map().Set(protoreflect.ValueOfString(key).MapKey(), protoreflect.ValueOfString(rapid.String().Draw(t, at+key)))
			}
		case fd.IsList():
			for j := range rapid.IntRange(1, 3).Draw(t, at) {
				m.Mutable(fd).List().Append(drawValue(t, fmt.Sprint(at, j), m.Mutable(fd).List().NewElement(), fd))
			}
		default:
			m.Set(fd, drawValue(t, at, m.NewField(fd), fd))
		}
	}
}

func drawValue(t *rapid.T, label string, empty protoreflect.Value, fd protoreflect.FieldDescriptor) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rapid.Bool().Draw(t, label))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(rapid.Uint32().Draw(t, label))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(rapid.Float64Range(-1e9, 1e9).Draw(t, label) + 0) // no negative zero
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(rapid.String().Draw(t, label))
	case protoreflect.MessageKind:
	default:
		t.Fatalf("no values for %s", fd.FullName())
	}
	if d, ok := empty.Message().Interface().(*durationpb.Duration); ok {
		const limit = 315_576_000_000 // the longest valid duration, in seconds
		d.Seconds = rapid.Int64Range(-limit, limit).Draw(t, label)
		if n := rapid.Int32Range(0, 999_999_999).Draw(t, label+".nanos"); d.Seconds < 0 {
			d.Nanos = -n
		} else if d.Seconds > 0 {
			d.Nanos = n
		}
		return empty
	}
	drawMessage(t, label, empty.Message())
	return empty
}
