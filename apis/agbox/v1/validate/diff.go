package validate

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Change is one field that differs between two specs.
type Change struct {
	// Path is "image", "labels[team]", "security.profile" or "required_services[db].memory_limit". A list that is not of services is one
	// field.
	Path string
	// Old and New are for people; empty is absent. Values of environment variables are never shown.
	Old, New string

	// field is the one that Path ends with; nil when services came, went or changed places.
	field protoreflect.FieldDescriptor
}

// Diff returns what differs between two specs once both are normalized, in the order of the fields. Services are
// matched by name; their order counts for the required ones only, which start one after the other.
func Diff(before, after *agboxv1.CreateSpec) []Change {
	var d differ
	d.message("", Normalize(before).ProtoReflect(), Normalize(after).ProtoReflect())
	return d.changes
}

type differ struct{ changes []Change }

func (d *differ) add(path, before, after string, field protoreflect.FieldDescriptor) {
	d.changes = append(d.changes, Change{Path: path, Old: before, New: after, field: field})
}

// message compares two messages whose paths begin with prefix.
func (d *differ) message(prefix string, before, after protoreflect.Message) {
	fields := before.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		path, a, b := prefix+fd.TextName(), before.Get(fd), after.Get(fd)
		switch {
		case fd.IsMap():
			d.entries(path, fd, a.Map(), b.Map())
		case fd.FullName() == "agbox.v1.CreateSpec.security": // an absent one reads as empty
			d.message(path+".", a.Message(), b.Message())
		case fd.IsList() && fd.Message() != nil && fd.Message().FullName() == "agbox.v1.ServiceSpec":
			d.services(path, serviceList(a.List()), serviceList(b.List()))
		case before.Has(fd) != after.Has(fd) || !a.Equal(b):
			d.add(path, show(before, fd), show(after, fd), fd)
		}
	}
}

func (d *differ) entries(path string, field protoreflect.FieldDescriptor, before, after protoreflect.Map) {
	a, b := stringMap(before), stringMap(after)
	all := maps.Clone(a)
	maps.Copy(all, b)
	for _, key := range sortedKeys(all) {
		old, was := a[key]
		now, is := b[key]
		if was == is && old == now {
			continue
		}
		if field.Name() == "envs" {
			old, now = hidden(was, false), hidden(is, was)
		}
		d.add(keyed(path, key), old, now, field)
	}
}

// hidden stands for the value of an environment variable.
func hidden(present, changed bool) string {
	switch {
	case !present:
		return ""
	case changed:
		return "(changed)"
	}
	return "(set)"
}

func (d *differ) services(path string, before, after []*agboxv1.ServiceSpec) {
	var stayed, stay []string // the names in both, in either order
	for _, s := range before {
		at := keyed(path, s.GetName())
		if i := find(after, s.GetName()); i >= 0 {
			stayed = append(stayed, s.GetName())
			d.message(at+".", s.ProtoReflect(), after[i].ProtoReflect())
		} else {
			d.add(at, "image "+s.GetImage(), "", nil)
		}
	}
	for _, s := range after {
		if find(before, s.GetName()) >= 0 {
			stay = append(stay, s.GetName())
		} else {
			d.add(keyed(path, s.GetName()), "", "image "+s.GetImage(), nil)
		}
	}
	if path == "required_services" && !slices.Equal(stayed, stay) {
		d.add(path, "in the order "+strings.Join(stayed, ", "), "in the order "+strings.Join(stay, ", "), nil)
	}
}

func find(services []*agboxv1.ServiceSpec, name string) int {
	return slices.IndexFunc(services, func(s *agboxv1.ServiceSpec) bool { return s.GetName() == name })
}

func serviceList(l protoreflect.List) []*agboxv1.ServiceSpec {
	all := make([]*agboxv1.ServiceSpec, 0, l.Len())
	for i := range l.Len() {
		if s, ok := l.Get(i).Message().Interface().(*agboxv1.ServiceSpec); ok {
			all = append(all, s)
		}
	}
	return all
}

func stringMap(m protoreflect.Map) map[string]string {
	out := make(map[string]string, m.Len())
	m.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		out[key.String()] = value.String()
		return true
	})
	return out
}

// show renders a field for people: empty when it is not set, otherwise much as it is written in YAML. Maps are not
// shown.
func show(m protoreflect.Message, fd protoreflect.FieldDescriptor) string {
	switch {
	case !m.Has(fd) || fd.IsMap():
		return ""
	case !fd.IsList():
		if fd.Kind() == protoreflect.StringKind {
			return m.Get(fd).String() // alone it needs no quotes
		}
		return showValue(m.Get(fd), fd)
	}
	parts := make([]string, m.Get(fd).List().Len())
	for i := range parts {
		parts[i] = showValue(m.Get(fd).List().Get(i), fd)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func showValue(v protoreflect.Value, fd protoreflect.FieldDescriptor) string {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return strconv.Quote(v.String())
	case protoreflect.MessageKind:
		if d, ok := v.Message().Interface().(*durationpb.Duration); ok {
			return d.AsDuration().String()
		}
		return showMessage(v.Message())
	}
	return fmt.Sprint(v.Interface())
}

func showMessage(m protoreflect.Message) string {
	var parts []string
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		if fd := fields.Get(i); m.Has(fd) {
			parts = append(parts, fd.TextName()+": "+show(m, fd))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
