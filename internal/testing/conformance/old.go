package conformance

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

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
		m.Field = slices.DeleteFunc(m.Field, func(f *descriptorpb.FieldDescriptorProto) bool { return f.GetNumber() >= agboxv1.FirstAddition })
	}
	for _, e := range file.EnumType {
		e.Value = slices.DeleteFunc(e.Value, func(v *descriptorpb.EnumValueDescriptorProto) bool { return v.GetNumber() >= agboxv1.FirstAddition })
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
	o.must(undeclared(o, o.conn).Invoke(ctx, "/agbox.v1.SandboxService/"+string(method), o.from(req), out))
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
	for name, run := range map[string]func(*old){
		"events of newer types are left out":             (*old).newEvents,
		"a paused sandbox is a stopped one":              (*old).pausedIsStopped,
		"a stop of a paused sandbox is a stop":           (*old).stopsPaused,
		"waits end in spite of what others do":           (*old).waitsAmongOthers,
		"a snapshot leaves out an event of a newer type": (*old).snapshotOfOurs,
	} {
		c.sub(t, name, func(c *client) { run(&old{c, file}) })
	}
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

// stream is a subscription of an old client.
type oldStream struct {
	*old
	grpc.ClientStream
	last uint64
}

func (o *old) subscribes(ctx context.Context, id string, from uint64, snapshot bool) *oldStream {
	o.Helper()
	s, err := undeclared(o, o.conn).NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/agbox.v1.SandboxService/SubscribeSandboxEvents")
	o.must(err)
	o.must(s.SendMsg(o.from(&agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, FromSequence: from, IncludeCurrentSnapshot: snapshot})))
	o.must(s.CloseSend())
	return &oldStream{o, s, from}
}

func (s *oldStream) next() *dynamicpb.Message {
	s.Helper()
	e := s.message("SandboxEvent")
	s.must(s.RecvMsg(e))
	return e
}

// follow reads events until one of a type and returns their sequences, which grow.
func (o *old) follow(id string, from uint64, last agboxv1.EventType) (list []uint64) {
	o.Helper()
	for s := o.subscribes(o.ctx(), id, from, false); ; {
		e := s.next()
		n := get(e, "sequence").Uint()
		if get(e, "sandbox_id").String() != id || n <= from {
			o.Errorf("after event %d: %v", from, e)
		}
		from, list = n, append(list, n)
		if int32(get(e, "event_type").Enum()) == int32(last) {
			return list
		}
	}
}

func (o *old) handle(id string) protoreflect.Message {
	o.Helper()
	return get(o.call(o.ctx(), "GetSandbox", &agboxv1.GetSandboxRequest{SandboxId: id}), "sandbox").Message()
}

// isIn checks the state in the answers of GetSandbox and of ListSandboxes.
func (o *old) isIn(id string, want agboxv1.SandboxState) {
	o.Helper()
	if got := get(o.handle(id), "state").Enum(); int32(got) != int32(want) {
		o.Errorf("GetSandbox: state is %d, want %d", got, want)
	}
	list := get(o.call(o.ctx(), "ListSandboxes", &agboxv1.ListSandboxesRequest{}), "sandboxes").List()
	for i := range list.Len() {
		h := list.Get(i).Message()
		if got := get(h, "state").Enum(); get(h, "sandbox_id").String() == id && int32(got) != int32(want) {
			o.Errorf("ListSandboxes: state is %d, want %d", got, want)
		}
	}
}

// waitFor waits as old clients do: read, subscribe from there, read again after each newer event, fail on FAILED.
func (o *old) waitFor(id string, want agboxv1.SandboxState) {
	o.Helper()
	ctx, cancel := context.WithCancel(o.ctx())
	defer cancel()
	h := o.handle(id)
	from := get(h, "last_event_sequence").Uint()
	for s := o.subscribes(ctx, id, from, false); ; h = o.handle(id) {
		switch state := get(h, "state").Enum(); int32(state) {
		case int32(want):
			return
		case int32(failed):
			o.Fatalf("it failed: %v", h)
		}
		e := s.next()
		if n := get(e, "sequence").Uint(); n <= from {
			o.Fatalf("after event %d: %v", from, e)
		}
		from = get(e, "sequence").Uint()
	}
}

// newEvents has a newer client make events of new types. Their sequences are used all the same, and are anchors.
func (o *old) newEvents() {
	id := o.ready(labelled("team", "a"))
	o.update(id, &spec{Image: o.target.Image, Labels: map[string]string{"team": "b"}}, false)
	o.setTimeout(id)
	anchor := get(o.handle(id), "last_event_sequence").Uint()
	o.must(o.tryStop(id))
	got := o.follow(id, 0, agboxv1.EventType_SANDBOX_STOPPED)
	var want []uint64
	for _, e := range o.history(id) {
		if !isOurs(e) {
			want = append(want, e.GetSequence())
		}
	}
	if last := got[len(got)-1]; !slices.Equal(got, want) || uint64(len(got)) == last {
		o.Errorf("sequences %v, want %v", got, want)
	}
	if got := o.follow(id, anchor, agboxv1.EventType_SANDBOX_STOPPED); len(got) != 2 || got[0] != anchor+1 {
		o.Errorf("after %d: %v", anchor, got)
	}
}

// setTimeout is the call of a newer client meanwhile.
func (o *old) setTimeout(id string) {
	o.Helper()
	_, err := o.SetSandboxTimeout(o.ctx(), &agboxv1.SetSandboxTimeoutRequest{
		SandboxId: id, When: &agboxv1.SetSandboxTimeoutRequest_Timeout{Timeout: durationpb.New(time.Hour)},
	})
	o.must(err)
}

// pausedIsStopped resumes it as well.
func (o *old) pausedIsStopped() {
	id := o.paused()
	o.isIn(id, stopped)
	o.waitFor(id, stopped)
	o.refused(o.conn.Invoke(o.ctx(), agboxv1.SandboxService_CreateExec_FullMethodName,
		&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"true"}}, &agboxv1.CreateExecResponse{}), sandboxNotReady(id))
	o.call(o.ctx(), "ResumeSandbox", &agboxv1.ResumeSandboxRequest{SandboxId: id})
	o.waitFor(id, ready)
	o.isIn(id, ready)
	o.call(o.ctx(), "StopSandbox", &agboxv1.StopSandboxRequest{SandboxId: id})
	o.waitFor(id, stopped)
	o.isState(id, stopped)
}

// stopsPaused stops what the client saw READY a moment ago, or wants to be sure of. When it reads STOPPED afterwards, it can be resumed.
func (o *old) stopsPaused() {
	id := o.paused()
	before := get(o.handle(id), "last_event_sequence").Uint()
	o.call(o.ctx(), "StopSandbox", &agboxv1.StopSandboxRequest{SandboxId: id})
	o.waitFor(id, stopped)
	s := o.subscribes(o.ctx(), id, before, false)
	for _, want := range []agboxv1.SandboxState{ready, stopped} {
		if e := s.next(); int32(get(e, "sandbox_state").Enum()) != int32(want) {
			o.Errorf("%v, want state %s", e, want)
		}
	}
	o.isState(id, stopped)
	o.call(o.ctx(), "ResumeSandbox", &agboxv1.ResumeSandboxRequest{SandboxId: id})
	o.waitFor(id, ready)
}

// waitsAmongOthers waits for an exec and for a state while a newer client sets timeouts.
func (o *old) waitsAmongOthers() {
	id := o.create()
	o.setTimeout(id)
	o.waitFor(id, ready)
	o.setTimeout(id)
	x := get(o.call(o.ctx(), "CreateExec", &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sleep", "1"}}), "exec_id").String()
	o.setTimeout(id)
	st := o.call(o.ctx(), "GetExec", &agboxv1.GetExecRequest{ExecId: x})
	from := get(st, "exec", "last_event_sequence").Uint()
	if from == 0 {
		o.Error("the exec's last_event_sequence is 0")
	}
	for s := o.subscribes(o.ctx(), id, from, false); ; {
		e := s.next()
		if get(e, "exec", "exec_id").String() == x && get(e, "sequence").Uint() > from {
			break
		}
	}
	st = o.call(o.ctx(), "GetExec", &agboxv1.GetExecRequest{ExecId: x})
	if got := get(st, "exec", "state").Enum(); int32(got) != int32(finished) {
		o.Errorf("the exec's state is %d", got)
	}
}

// snapshotOfOurs begins with what the client knows of it: the active execs.
func (o *old) snapshotOfOurs() {
	id, x := o.ready(), newID()
	o.exec(id, x, "sleep", "60")
	o.setTimeout(id)
	newest := o.get(id).GetLastEventSequence()
	s := o.subscribes(o.ctx(), id, newest, true)
	if e := s.next(); get(e, "event_id").String() != id+"-snapshot-"+x || get(e, "sequence").Uint() != newest || !get(e, "snapshot").Bool() {
		o.Errorf("the snapshot begins with %v", e)
	}
	o.must(o.tryCancel(x))
	if e := s.next(); get(e, "sequence").Uint() != newest+1 || get(e, "snapshot").Bool() {
		o.Errorf("live: %v", e)
	}
}
