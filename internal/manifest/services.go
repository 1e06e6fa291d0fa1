package manifest

import (
	"strings"

	"github.com/goccy/go-yaml/ast"
	"google.golang.org/protobuf/reflect/protoreflect"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

var serviceName = (&agboxv1.ServiceSpec{}).ProtoReflect().Descriptor().FullName()

const servicesForm = `"db: {image: postgres}"`

// isServices reports whether fd is a list of services, which is written as a mapping from their names.
func isServices(fd protoreflect.FieldDescriptor) bool {
	return fd.IsList() && fd.Message() != nil && fd.Message().FullName() == serviceName
}

// services reads a mapping from names to services. It keeps their order, in which required services start.
func (d *decoder) services(node ast.Node, path string, out protoreflect.List) error {
	if _, ok := node.(*ast.SequenceNode); ok {
		return &Error{Line: line(node), Path: path, Text: `must be a mapping from the names, such as ` + servicesForm + `, not a list`}
	}
	entries, err := d.entries(node, path, servicesForm)
	if err != nil {
		return err
	}
	for _, e := range entries {
		s, err := d.service(e, join(path, e.key))
		if err := d.keep(err); err != nil {
			return err
		}
		out.Append(protoreflect.ValueOfMessage(s.ProtoReflect()))
	}
	return nil
}

// isServiceName reports whether fd is the name inside a service. Such a key is refused even if it repeats the service's name: users would
// have to change the name in two places.
func isServiceName(fd protoreflect.FieldDescriptor) bool {
	return fd.Name() == "name" && fd.Parent().FullName() == serviceName
}

func (d *decoder) service(e entry, path string) (*agboxv1.ServiceSpec, error) {
	s := &agboxv1.ServiceSpec{}
	err := d.message(e.value, path, s.ProtoReflect())
	s.Name = e.key
	return s, err
}

// names returns the keys that a mapping may have.
func names(fields protoreflect.FieldDescriptors) string {
	var all []string
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !isServiceName(fd) {
			all = append(all, string(fd.Name()))
		}
	}
	return strings.Join(all, ", ")
}
