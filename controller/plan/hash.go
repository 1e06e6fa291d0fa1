package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

// SpecHash identifies the part of a spec that its containers cannot change once they exist: version 2 covers every field except those that
// validate.InPlace names. Unset fields do not count, so a new field changes no hash of a spec without it. A hash of an unknown version says
// nothing about drift.
func SpecHash(spec *agboxv1.CreateSpec) string {
	var text strings.Builder
	hashMessage(&text, spec.ProtoReflect())
	sum := sha256.Sum256([]byte(text.String()))
	return "v2:" + hex.EncodeToString(sum[:])[:32]
}

// hashMessage writes the set fields in the order of their numbers, each with its name, and each value with its length.
func hashMessage(w *strings.Builder, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for _, n := range numbers(fields) {
		fd := fields.ByNumber(n)
		if !m.Has(fd) || validate.InPlace(fd) {
			continue
		}
		hashText(w, string(fd.Name()))
		hashField(w, fd, m.Get(fd))
	}
	hashText(w, "end")
}

func numbers(fields protoreflect.FieldDescriptors) []protoreflect.FieldNumber {
	list := make([]protoreflect.FieldNumber, fields.Len())
	for i := range list {
		list[i] = fields.Get(i).Number()
	}
	slices.Sort(list)
	return list
}

func hashField(w *strings.Builder, fd protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch {
	case fd.IsMap():
		pairs := map[string]string{}
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			pairs[k.String()] = v.String()
			return true
		})
		for _, k := range slices.Sorted(maps.Keys(pairs)) {
			hashText(w, k)
			hashText(w, pairs[k])
		}
	case fd.IsList():
		for i := range v.List().Len() {
			hashValue(w, fd, v.List().Get(i))
		}
	default:
		hashValue(w, fd, v)
	}
}

func hashValue(w *strings.Builder, fd protoreflect.FieldDescriptor, v protoreflect.Value) {
	if fd.Kind() == protoreflect.MessageKind {
		hashMessage(w, v.Message())
		return
	}
	hashText(w, v.String())
}

func hashText(w *strings.Builder, text string) { fmt.Fprintf(w, "%d:%s", len(text), text) }
