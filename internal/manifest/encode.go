package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/agbox/agbox/apis/enum"
)

// JSON returns a message of the API as one line of JSON, which is also YAML. It contains the fields that are set, by their proto names and in
// proto order, values of enums as enum.Word, and services and volumes of specs as objects keyed by name. ParseSpec reads a printed spec back
// as an equal spec. Two services of one name, which validate.Create refuses, are an error, because the object could hold only one of them.
func JSON(message proto.Message) (json.RawMessage, error) {
	text, err := members(message.ProtoReflect())
	if err != nil {
		return nil, fmt.Errorf("write as JSON: %w", err)
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
	switch value := m.Get(fd); {
	case isKeyed(fd):
		return mapping(value.List(), fd)
	case fd.IsMap(), fd.Enum() == nil && !isOurs(fd.Message()):
		one := m.New()
		one.Set(fd, value)
		text, err := object(one)
		return bytes.TrimSuffix(bytes.TrimPrefix(text, []byte("{")), []byte("}")), err
	case fd.IsList():
		var all [][]byte
		for i := range value.List().Len() {
			text, err := element(value.List().Get(i), fd)
			if err != nil {
				return nil, err
			}
			all = append(all, text)
		}
		return fmt.Appendf(nil, "%q:[%s]", fd.Name(), bytes.Join(all, []byte(","))), nil
	default:
		text, err := element(value, fd)
		return fmt.Appendf(nil, "%q:%s", fd.Name(), text), err
	}
}

// element returns an enum value or a message of ours.
func element(value protoreflect.Value, fd protoreflect.FieldDescriptor) ([]byte, error) {
	if fd.Enum() != nil {
		return strconv.AppendQuote(nil, enum.WordOf(fd.Enum(), value.Enum())), nil
	}
	return members(value.Message())
}

// isOurs reports whether a message has no JSON form of its own, as durations and times have.
func isOurs(md protoreflect.MessageDescriptor) bool {
	return md != nil && md.ParentFile().Package() != "google.protobuf"
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
