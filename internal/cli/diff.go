package cli

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// changedFields names the fields in which two specs differ, maps by their keys: "image", "envs.PATH". No values.
func changedFields(old, now *agboxv1.CreateSpec) (changed []string) {
	was, is := old.ProtoReflect(), now.ProtoReflect()
	fields := is.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		switch {
		case fd.IsMap():
			changed = append(changed, changedKeys(string(fd.Name()), was.Get(fd).Map(), is.Get(fd).Map())...)
		case was.Has(fd) != is.Has(fd) || !was.Get(fd).Equal(is.Get(fd)):
			changed = append(changed, string(fd.Name()))
		}
	}
	return changed
}

func changedKeys(field string, was, is protoreflect.Map) (changed []string) {
	keys := map[string]bool{}
	differ := func(a, b protoreflect.Map) {
		a.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
			if !b.Has(key) || !value.Equal(b.Get(key)) {
				keys[field+"."+key.String()] = true
			}
			return true
		})
	}
	differ(was, is)
	differ(is, was)
	return slices.Sorted(maps.Keys(keys))
}
