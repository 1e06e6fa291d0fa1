package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// SpecJSON returns a spec as one line of JSON, which is also YAML, so printed specs can be applied: ParseSpec reads it back as an equal
// spec. It contains the fields that are set, by their proto names and in proto order, and services as an object keyed by name. Two services
// of one name, which validate.Create refuses, are an error, because the object could hold only one of them.
func SpecJSON(spec *agboxv1.CreateSpec) (json.RawMessage, error) {
	return specJSON(spec.ProtoReflect())
}

// AgentSpecJSON is SpecJSON for an agent.
func AgentSpecJSON(spec *agboxv1.AgentSpec) (json.RawMessage, error) {
	return specJSON(spec.ProtoReflect())
}

func specJSON(spec protoreflect.Message) (json.RawMessage, error) {
	var w writer
	if err := w.message(spec); err != nil {
		return nil, fmt.Errorf("write spec: %w", err)
	}
	return bytes.TrimSpace(w.out.Bytes()), nil
}

// writer writes messages according to their descriptors, like decoder reads them.
type writer struct{ out bytes.Buffer }

func (w *writer) message(m protoreflect.Message) error {
	var set []protoreflect.FieldDescriptor
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		isKey := fd.Name() == "name" && m.Descriptor().FullName() == serviceName
		if m.Has(fd) && !isKey {
			set = append(set, fd)
		}
	}
	return w.group("{}", len(set), func(i int) error {
		w.key(string(set[i].Name()))
		return w.field(m.Get(set[i]), set[i])
	})
}

func (w *writer) field(v protoreflect.Value, fd protoreflect.FieldDescriptor) error {
	switch {
	case fd.IsMap():
		return w.entries(v.Map())
	case isServices(fd):
		return w.services(v.List())
	case fd.IsList():
		return w.group("[]", v.List().Len(), func(i int) error { return w.value(v.List().Get(i), fd) })
	}
	return w.value(v, fd)
}

func (w *writer) value(v protoreflect.Value, fd protoreflect.FieldDescriptor) error {
	if fd.Kind() != protoreflect.MessageKind {
		return w.scalar(v.Interface())
	}
	d, ok := v.Message().Interface().(*durationpb.Duration)
	if !ok {
		return w.message(v.Message())
	}
	text, err := protojson.Marshal(d)
	w.out.Write(text)
	return err
}

func (w *writer) entries(m protoreflect.Map) error {
	all := map[string]protoreflect.Value{}
	m.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		all[key.String()] = value
		return true
	})
	keys := slices.Sorted(maps.Keys(all))
	return w.group("{}", len(keys), func(i int) error {
		w.key(keys[i])
		return w.scalar(all[keys[i]].Interface())
	})
}

func (w *writer) services(list protoreflect.List) error {
	taken := map[string]bool{}
	return w.group("{}", list.Len(), func(i int) error {
		s := list.Get(i).Message()
		name := s.Get(s.Descriptor().Fields().ByName("name")).String()
		if taken[name] {
			return fmt.Errorf("two services have the name %q", name)
		}
		taken[name] = true
		w.key(name)
		return w.message(s)
	})
}

// group writes n members between two brackets.
func (w *writer) group(brackets string, n int, member func(int) error) error {
	w.out.WriteByte(brackets[0])
	for i := range n {
		if i > 0 {
			w.out.WriteByte(',')
		}
		if err := member(i); err != nil {
			return err
		}
	}
	w.out.WriteByte(brackets[1])
	return nil
}

func (w *writer) key(key string) {
	_ = w.scalar(key) // every string has a JSON form
	w.out.WriteByte(':')
}

func (w *writer) scalar(v any) error {
	enc := json.NewEncoder(&w.out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	if n := w.out.Len(); err == nil && n > 0 {
		w.out.Truncate(n - 1) // removes the encoder's newline
	}
	return err
}
