// Package upgrade compares two versions of agboxd on one data directory: what a daemon answers about everything that it has on record,
// as JSON that can be kept in a file, and data directories in small archives.
package upgrade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Answers are what a daemon answers, by the question: "sandboxes", "sandbox web", "events of web", "exec e1", "conversation of helper".
// Values are those of encoding/json. The daemon's data directory reads "<data>".
type Answers map[string]any

// Ask asks a daemon with that data directory for everything it has on record. ctx bounds all calls together.
func Ask(ctx context.Context, conn grpc.ClientConnInterface, dataDir string) (Answers, error) {
	a := asker{
		ctx: metadata.AppendToOutgoingContext(ctx, "agbox-contract", "100"), dataDir: dataDir, answers: Answers{},
		boxes: agboxv1.NewSandboxServiceClient(conn), agents: agboxv1.NewAgentServiceClient(conn),
	}
	a.askSandboxes()
	a.askAgents()
	return a.answers, a.err
}

type asker struct {
	ctx     context.Context
	dataDir string
	answers Answers
	err     error // of the first question that got no answer
	boxes   agboxv1.SandboxServiceClient
	agents  agboxv1.AgentServiceClient
}

func (a *asker) askSandboxes() {
	list, err := a.boxes.ListSandboxes(a.ctx, &agboxv1.ListSandboxesRequest{IncludeDeleted: true})
	a.record("sandboxes", list, err)
	active, err := a.boxes.ListActiveExecs(a.ctx, &agboxv1.ListActiveExecsRequest{})
	a.record("active execs", active, err)
	for _, sb := range list.GetSandboxes() {
		id := sb.GetSandboxId()
		got, err := a.boxes.GetSandbox(a.ctx, &agboxv1.GetSandboxRequest{SandboxId: id})
		a.record("sandbox "+id, got, err)
		a.askExecs(events(a, id, got.GetSandbox().GetLastEventSequence(), func(ctx context.Context) (grpc.ServerStreamingClient[agboxv1.SandboxEvent], error) {
			return a.boxes.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id})
		}))
	}
}

// askExecs asks for the execs that a history names.
func (a *asker) askExecs(history []*agboxv1.SandboxEvent) {
	for _, e := range history {
		if e.GetEventType() == agboxv1.EventType_EXEC_STARTED {
			id := e.GetExec().GetExecId()
			got, err := a.boxes.GetExec(a.ctx, &agboxv1.GetExecRequest{ExecId: id})
			a.record("exec "+id, got, err)
		}
	}
}

func (a *asker) askAgents() {
	list, err := a.agents.ListAgents(a.ctx, &agboxv1.ListAgentsRequest{})
	a.record("agents", list, err)
	for _, agent := range list.GetAgents() {
		id := agent.GetAgentId()
		got, err := a.agents.GetAgent(a.ctx, &agboxv1.GetAgentRequest{AgentId: id})
		a.record("agent "+id, got, err)
		said, err := a.agents.GetAgentConversation(a.ctx, &agboxv1.GetAgentConversationRequest{AgentId: id})
		a.record("conversation of "+id, said, err)
		moves, err := a.agents.ListAgentTransitions(a.ctx, &agboxv1.ListAgentTransitionsRequest{AgentId: id})
		a.record("transitions of "+id, moves, err)
		events(a, "agent "+id, got.GetAgent().GetLastEventSequence(), func(ctx context.Context) (grpc.ServerStreamingClient[agboxv1.AgentEvent], error) {
			return a.agents.SubscribeAgentEvents(ctx, &agboxv1.SubscribeAgentEventsRequest{AgentId: id})
		})
	}
}

// message is an event that is read from a stream of E.
type message[E any] interface {
	*E
	proto.Message
	GetSequence() uint64
}

// events reads and records the history of an object, up to the event with the sequence last.
func events[E any, M message[E]](a *asker, of string, last uint64, subscribe func(context.Context) (grpc.ServerStreamingClient[E], error)) (list []M) {
	ctx, cancel := context.WithCancel(a.ctx)
	defer cancel()
	stream, err := subscribe(ctx)
	if err != nil {
		a.fail(fmt.Errorf("subscribe to the events of %s: %w", of, err))
		return nil
	}
	all := []any{}
	for last > 0 && (len(list) == 0 || list[len(list)-1].GetSequence() < last) {
		e, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("the stream ended after %d events, before sequence %d: %w", len(list), last, io.ErrUnexpectedEOF)
		}
		if err != nil {
			a.fail(fmt.Errorf("read the events of %s: %w", of, err))
			return list
		}
		list, all = append(list, M(e)), append(all, a.plain(M(e)))
	}
	a.answers["events of "+of] = all
	return list
}

func (a *asker) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

func (a *asker) record(question string, m proto.Message, err error) {
	if err != nil {
		a.fail(fmt.Errorf("ask for %s: %w", question, err))
		return
	}
	a.answers[question] = a.plain(m)
}

func (a *asker) plain(m proto.Message) (v any) {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err == nil {
		err = json.Unmarshal([]byte(strings.ReplaceAll(string(text), a.dataDir, "<data>")), &v)
	}
	if err != nil {
		a.fail(err)
	}
	return v
}

// Differences lists what differs, a sentence each, in order. Left out are the places in except, patterns of path.Match such as
// "sandbox */sandbox/status_message": the question, then the fields; an element of a list has its index.
func Differences(was, is Answers, except ...string) []string {
	d := differ{except: except}
	d.compare("", map[string]any(was), map[string]any(is))
	slices.Sort(d.found)
	return d.found
}

type differ struct {
	except []string
	found  []string
}

func (d *differ) compare(at string, was, is any) {
	if slices.ContainsFunc(d.except, func(pattern string) bool { ok, _ := path.Match(pattern, at); return ok }) {
		return
	}
	if was, ok := was.(map[string]any); ok {
		if is, ok := is.(map[string]any); ok {
			both := map[string]any{}
			maps.Copy(both, was)
			maps.Copy(both, is)
			for key := range both {
				d.compare(strings.TrimPrefix(at+"/"+key, "/"), was[key], is[key])
			}
			return
		}
	}
	if was, ok := was.([]any); ok {
		if is, ok := is.([]any); ok && len(is) == len(was) {
			for i := range was {
				d.compare(fmt.Sprintf("%s/%d", at, i), was[i], is[i])
			}
			return
		}
	}
	if !reflect.DeepEqual(was, is) {
		d.found = append(d.found, fmt.Sprintf("%s: was %v, is %v", at, was, is))
	}
}
