package validate

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

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
