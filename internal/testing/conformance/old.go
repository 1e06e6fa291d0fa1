package conformance

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// firstOfOurs is the first number of a field or an enum value that old clients do not know.
const firstOfOurs = 100

// oldMethods are the calls of old clients; a method has no number to tell it by.
var oldMethods = []string{
	"Ping", "CreateSandbox", "GetSandbox", "ListSandboxes", "ResumeSandbox", "StopSandbox", "DeleteSandbox", "DeleteSandboxes",
	"SubscribeSandboxEvents", "CreateExec", "CancelExec", "GetExec", "ListActiveExecs",
}

// OldFile is the contract as clients of today have it: ours without all that was added from 100 up.
func OldFile() (protoreflect.FileDescriptor, error) {
	file := protodesc.ToFileDescriptorProto(agboxv1.File_agbox_v1_sandbox_proto)
	file.Service = slices.DeleteFunc(file.Service, func(s *descriptorpb.ServiceDescriptorProto) bool { return s.GetName() != "SandboxService" })
	needed := map[string]bool{}
	for _, s := range file.Service {
		s.Method = slices.DeleteFunc(s.Method, func(m *descriptorpb.MethodDescriptorProto) bool { return !slices.Contains(oldMethods, m.GetName()) })
		for _, m := range s.Method {
			needed[m.GetInputType()], needed[m.GetOutputType()] = true, true
		}
	}
	for _, m := range file.MessageType {
		m.Field = slices.DeleteFunc(m.Field, func(f *descriptorpb.FieldDescriptorProto) bool { return f.GetNumber() >= firstOfOurs })
	}
	for _, e := range file.EnumType {
		e.Value = slices.DeleteFunc(e.Value, func(v *descriptorpb.EnumValueDescriptorProto) bool { return v.GetNumber() >= firstOfOurs })
	}
	reach(file, needed)
	file.MessageType = slices.DeleteFunc(file.MessageType, func(m *descriptorpb.DescriptorProto) bool { return !needed[fullName(m)] })
	return protodesc.NewFile(file, protoregistry.GlobalFiles)
}

func fullName(m *descriptorpb.DescriptorProto) string { return ".agbox.v1." + m.GetName() }

// reach adds the types of fields to what is needed, until nothing is new.
func reach(file *descriptorpb.FileDescriptorProto, needed map[string]bool) {
	for before := -1; before != len(needed); {
		before = len(needed)
		for _, m := range file.MessageType {
			if !needed[fullName(m)] {
				continue
			}
			for _, f := range m.GetField() {
				needed[f.GetTypeName()] = true
			}
		}
	}
}

// old is a client that knows nothing from 100 up.
type old struct {
	*client
	file protoreflect.FileDescriptor
}

// message is an empty message of the old contract.
func (o *old) message(name protoreflect.Name) *dynamicpb.Message {
	o.Helper()
	d := o.file.Messages().ByName(name)
	if d == nil {
		o.Fatalf("the old contract has no %s", name)
	}
	return dynamicpb.NewMessage(d)
}

// from makes a message of the old contract out of one of ours; what it does not know stays in the unknown fields.
func (o *old) from(m proto.Message) *dynamicpb.Message {
	o.Helper()
	data, err := proto.Marshal(m)
	o.must(err)
	out := o.message(m.ProtoReflect().Descriptor().Name())
	o.must(proto.Unmarshal(data, out))
	return out
}

// call invokes a method with a request of the old contract.
func (o *old) call(ctx context.Context, method protoreflect.Name, req proto.Message) *dynamicpb.Message {
	o.Helper()
	m := o.file.Services().Get(0).Methods().ByName(method)
	out := dynamicpb.NewMessage(m.Output())
	o.must(o.conn.Invoke(ctx, "/agbox.v1.SandboxService/"+string(method), o.from(req), out))
	return out
}

// get reads a field by its path.
func get(m protoreflect.Message, path ...protoreflect.Name) protoreflect.Value {
	for _, name := range path[:len(path)-1] {
		m = m.Get(m.Descriptor().Fields().ByName(name)).Message()
	}
	return m.Get(m.Descriptor().Fields().ByName(path[len(path)-1]))
}

func oldClient(t *testing.T, c *client) {
	file, err := OldFile()
	if err != nil {
		t.Fatal(err)
	}
	c.sub(t, "every call", func(c *client) { (&old{c, file}).everyCall() })
	c.sub(t, "events of types it never heard of", func(c *client) { (&old{c, file}).newEvents() })
}
