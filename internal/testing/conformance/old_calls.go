package conformance

import (
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/dynamicpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

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
	o.stop(id)
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
