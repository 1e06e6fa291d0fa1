package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// SpecJSON returns the spec of a sandbox or an agent as one line of JSON, which is also YAML, so printed specs can be applied: ParseSpec reads it back as an equal
// spec. It contains the fields that are set, by their proto names and in proto order, and services as an object keyed by name. Two services
// of one name, which validate.Create refuses, are an error, because the object could hold only one of them.
func SpecJSON(message proto.Message) (json.RawMessage, error) {
	text, err := members(message.ProtoReflect())
	if err != nil {
		return nil, fmt.Errorf("write spec: %w", err)
	}
	return text, nil
}

// members returns a message as a JSON object.
func members(m protoreflect.Message) (json.RawMessage, error) {
	var all [][]byte
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.Has(fd) {
			continue
		}
		text, err := member(m, fd)
		if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return group(all), nil
}

// member returns a field as a member of a JSON object.
func member(m protoreflect.Message, fd protoreflect.FieldDescriptor) ([]byte, error) {
	if isKeyed(fd) {
		return mapping(m.Get(fd).List(), fd)
	}
	one := m.New()
	one.Set(fd, m.Get(fd))
	text, err := object(one)
	return bytes.TrimSuffix(bytes.TrimPrefix(text, []byte("{")), []byte("}")), err
}

// mapping returns a list of messages with names as a member whose value is an object keyed by name.
func mapping(list protoreflect.List, fd protoreflect.FieldDescriptor) ([]byte, error) {
	var all [][]byte
	taken := map[string]bool{}
	key := fd.Message().Fields().ByName(nameField)
	for i := range list.Len() {
		one := proto.Clone(list.Get(i).Message().Interface()).ProtoReflect()
		name := one.Get(key).String()
		if taken[name] {
			return nil, fmt.Errorf("two %s have the name %q", plurals[fd.Message().Name()], name)
		}
		taken[name] = true
		quoted, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		one.Clear(key)
		text, err := members(one)
		if err != nil {
			return nil, err
		}
		all = append(all, slices.Concat(quoted, []byte(":"), text))
	}
	return fmt.Appendf(nil, "%q:%s", fd.Name(), group(all)), nil
}

// plurals are words for the messages of keyed.
var plurals = map[protoreflect.Name]string{"ServiceSpec": "services", "VolumeSpec": "volumes", "SecretSpec": "secrets"}

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
