package conformance

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/grpc"
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

// everyCall leads a sandbox through its life.
func (o *old) everyCall() {
	group := newID()
	if got := get(o.call(o.ctx(), "Ping", &agboxv1.PingRequest{}), "daemon").String(); got != "agboxd" {
		o.Errorf("daemon is %q", got)
	}
	id := newID()
	created := o.call(o.ctx(), "CreateSandbox", &agboxv1.CreateSandboxRequest{
		SandboxId: id, CreateSpec: &spec{Image: o.target.Image, Labels: map[string]string{"group": group}},
	})
	o.deleteAtEnd(id)
	if got := get(created, "sandbox", "sandbox_id").String(); got != id {
		o.Errorf("created %q", got)
	}
	o.follow(id, 0, agboxv1.EventType_SANDBOX_READY)
	if got := get(o.call(o.ctx(), "GetSandbox", &agboxv1.GetSandboxRequest{SandboxId: id}), "sandbox", "state").Enum(); int32(got) != int32(ready) {
		o.Errorf("state is %d", got)
	}
	o.runsAnExec(id)
	o.call(o.ctx(), "StopSandbox", &agboxv1.StopSandboxRequest{SandboxId: id})
	o.await(id, stopped)
	o.call(o.ctx(), "ResumeSandbox", &agboxv1.ResumeSandboxRequest{SandboxId: id})
	o.await(id, ready)
	list := get(o.call(o.ctx(), "ListSandboxes", &agboxv1.ListSandboxesRequest{LabelSelector: map[string]string{"group": group}}), "sandboxes").List()
	if list.Len() != 1 || get(list.Get(0).Message(), "image").String() != o.target.Image {
		o.Errorf("%d in the list", list.Len())
	}
	gone := o.call(o.ctx(), "DeleteSandboxes", &agboxv1.DeleteSandboxesRequest{LabelSelector: map[string]string{"group": group}})
	if got := get(gone, "deleted_count").Uint(); got != 1 {
		o.Errorf("%d deleted", got)
	}
	o.follow(id, 0, agboxv1.EventType_SANDBOX_DELETED)
	o.call(o.ctx(), "DeleteSandbox", &agboxv1.DeleteSandboxRequest{SandboxId: id})
}

func (o *old) runsAnExec(id string) {
	x := get(o.call(o.ctx(), "CreateExec", &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sleep", "60"}}), "exec_id").String()
	active := get(o.call(o.ctx(), "ListActiveExecs", &agboxv1.ListActiveExecsRequest{SandboxId: &id}), "execs").List()
	if active.Len() != 1 || get(active.Get(0).Message(), "exec_id").String() != x {
		o.Errorf("%d active execs", active.Len())
	}
	o.call(o.ctx(), "CancelExec", &agboxv1.CancelExecRequest{ExecId: x})
	o.ended(x)
	st := o.call(o.ctx(), "GetExec", &agboxv1.GetExecRequest{ExecId: x})
	if got := get(st, "exec", "state").Enum(); int32(got) != int32(agboxv1.ExecState_EXEC_STATE_CANCELLED) {
		o.Errorf("the exec's state is %d", got)
	}
}

// follow reads events until one of a type and returns them; none may be of another sandbox or lack its number.
func (o *old) follow(id string, from uint64, last agboxv1.EventType) []*dynamicpb.Message {
	o.Helper()
	s, err := o.conn.NewStream(o.ctx(), &grpc.StreamDesc{ServerStreams: true}, "/agbox.v1.SandboxService/SubscribeSandboxEvents")
	o.must(err)
	o.must(s.SendMsg(o.from(&agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, FromSequence: from})))
	o.must(s.CloseSend())
	for list := []*dynamicpb.Message(nil); ; {
		e := o.message("SandboxEvent")
		o.must(s.RecvMsg(e))
		list = append(list, e)
		if get(e, "sandbox_id").String() != id || get(e, "sequence").Uint() != from+uint64(len(list)) {
			o.Errorf("event %d: %v", len(list), e)
		}
		if int32(get(e, "event_type").Enum()) == int32(last) {
			return list
		}
	}
}

// newEvents has a newer client make an event of a new type with details in a new field; the old one reads over it.
func (o *old) newEvents() {
	id := o.ready(labelled("team", "a"))
	o.update(id, &spec{Image: o.target.Image, Labels: map[string]string{"team": "b"}}, false)
	o.must(o.tryStop(id))
	unknown := 0
	for _, e := range o.follow(id, 0, agboxv1.EventType_SANDBOX_STOPPED) {
		number := get(e, "event_type").Enum()
		if e.Descriptor().Fields().ByName("event_type").Enum().Values().ByNumber(number) != nil {
			continue
		}
		unknown++
		if number < firstOfOurs || len(e.GetUnknown()) == 0 {
			o.Errorf("event of type %d: %v", number, e)
		}
	}
	if unknown == 0 {
		o.Error("no event of a new type was there")
	}
}
