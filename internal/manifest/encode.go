package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// SpecJSON returns the spec of a sandbox or an agent as one line of JSON, which is also YAML, so printed specs can be applied: ParseSpec reads it back as an equal
// spec. It contains the fields that are set, by their proto names and in proto order, and services as an object keyed by name. Two services
// of one name, which validate.Create refuses, are an error, because the object could hold only one of them.
func SpecJSON(message proto.Message) (json.RawMessage, error) {
	spec := message.ProtoReflect()
	var members [][]byte
	fields := spec.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !spec.Has(fd) {
			continue
		}
		write := member
		if isServices(fd) {
			write = services
		}
		text, err := write(spec, fd)
		if err != nil {
			return nil, fmt.Errorf("write spec: %w", err)
		}
		members = append(members, text)
	}
	return group(members), nil
}

// member returns a field as a member of a JSON object.
func member(m protoreflect.Message, fd protoreflect.FieldDescriptor) ([]byte, error) {
	one := m.New()
	one.Set(fd, m.Get(fd))
	text, err := object(one)
	return bytes.TrimSuffix(bytes.TrimPrefix(text, []byte("{")), []byte("}")), err
}

// services returns a list of services as a member whose value is an object keyed by name.
func services(m protoreflect.Message, fd protoreflect.FieldDescriptor) ([]byte, error) {
	var members [][]byte
	taken := map[string]bool{}
	list := m.Get(fd).List()
	for i := range list.Len() {
		s := proto.CloneOf(list.Get(i).Message().Interface().(*agboxv1.ServiceSpec))
		if taken[s.GetName()] {
			return nil, fmt.Errorf("two services have the name %q", s.GetName())
		}
		taken[s.GetName()] = true
		key, err := json.Marshal(s.GetName())
		if err != nil {
			return nil, err
		}
		s.Name = "" // it is the key
		text, err := object(s.ProtoReflect())
		if err != nil {
			return nil, err
		}
		members = append(members, slices.Concat(key, []byte(":"), text))
	}
	return fmt.Appendf(nil, "%q:%s", fd.Name(), group(members)), nil
}

func group(members [][]byte) []byte {
	return slices.Concat([]byte("{"), bytes.Join(members, []byte(",")), []byte("}"))
}

// object returns a message as JSON without the blanks that protojson varies.
func object(m protoreflect.Message) ([]byte, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m.Interface())
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = json.Compact(&out, text)
	return out.Bytes(), err
}
