package upgrade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	err := errors.Join(a.askSandboxes(), a.askAgents())
	return a.answers, err
}

type asker struct {
	ctx     context.Context
	dataDir string
	answers Answers
	boxes   agboxv1.SandboxServiceClient
	agents  agboxv1.AgentServiceClient
}

func (a *asker) askSandboxes() error {
	list, err := a.boxes.ListSandboxes(a.ctx, &agboxv1.ListSandboxesRequest{IncludeDeleted: true})
	if err := a.record("sandboxes", list, err); err != nil {
		return err
	}
	active, err := a.boxes.ListActiveExecs(a.ctx, &agboxv1.ListActiveExecsRequest{})
	if err := a.record("active execs", active, err); err != nil {
		return err
	}
	for _, sb := range list.GetSandboxes() {
		id := sb.GetSandboxId()
		got, err := a.boxes.GetSandbox(a.ctx, &agboxv1.GetSandboxRequest{SandboxId: id})
		if err := a.record("sandbox "+id, got, err); err != nil {
			return err
		}
		if err := a.askEvents(id, got.GetSandbox().GetLastEventSequence()); err != nil {
			return err
		}
	}
	return nil
}

// askEvents reads the history of a sandbox, and the execs that it names.
func (a *asker) askEvents(id string, last uint64) error {
	ctx, cancel := context.WithCancel(a.ctx)
	defer cancel()
	stream, err := a.boxes.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id})
	if err != nil {
		return fmt.Errorf("subscribe to the events of %s: %w", id, err)
	}
	events, err := receive(stream.Recv, last)
	if err != nil {
		return fmt.Errorf("read the events of %s: %w", id, err)
	}
	if err := recordAll(a, "events of "+id, events); err != nil {
		return err
	}
	for _, e := range events {
		if e.GetEventType() != agboxv1.EventType_EXEC_STARTED {
			continue
		}
		exec := e.GetExec().GetExecId()
		got, err := a.boxes.GetExec(a.ctx, &agboxv1.GetExecRequest{ExecId: exec})
		if err := a.record("exec "+exec, got, err); err != nil {
			return err
		}
	}
	return nil
}

func (a *asker) askAgents() error {
	list, err := a.agents.ListAgents(a.ctx, &agboxv1.ListAgentsRequest{})
	if err := a.record("agents", list, err); err != nil {
		return err
	}
	for _, agent := range list.GetAgents() {
		id := agent.GetAgentId()
		got, err := a.agents.GetAgent(a.ctx, &agboxv1.GetAgentRequest{AgentId: id})
		if err := a.record("agent "+id, got, err); err != nil {
			return err
		}
		said, err := a.agents.GetAgentConversation(a.ctx, &agboxv1.GetAgentConversationRequest{AgentId: id})
		if err := a.record("conversation of "+id, said, err); err != nil {
			return err
		}
		moves, err := a.agents.ListAgentTransitions(a.ctx, &agboxv1.ListAgentTransitionsRequest{AgentId: id})
		if err := a.record("transitions of "+id, moves, err); err != nil {
			return err
		}
		if err := a.askAgentEvents(id, got.GetAgent().GetLastEventSequence()); err != nil {
			return err
		}
	}
	return nil
}

func (a *asker) askAgentEvents(id string, last uint64) error {
	ctx, cancel := context.WithCancel(a.ctx)
	defer cancel()
	stream, err := a.agents.SubscribeAgentEvents(ctx, &agboxv1.SubscribeAgentEventsRequest{AgentId: id})
	if err != nil {
		return fmt.Errorf("subscribe to the events of agent %s: %w", id, err)
	}
	events, err := receive(stream.Recv, last)
	if err != nil {
		return fmt.Errorf("read the events of agent %s: %w", id, err)
	}
	return recordAll(a, "events of agent "+id, events)
}

// receive reads a stream up to the event with the sequence last.
func receive[E interface{ GetSequence() uint64 }](next func() (E, error), last uint64) (events []E, err error) {
	for last > 0 && (len(events) == 0 || events[len(events)-1].GetSequence() < last) {
		e, err := next()
		if errors.Is(err, io.EOF) {
			return events, fmt.Errorf("the stream ended after %d events, before sequence %d: %w", len(events), last, io.ErrUnexpectedEOF)
		}
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
	return events, nil
}

func recordAll[M proto.Message](a *asker, question string, list []M) error {
	all := []any{}
	for _, m := range list {
		v, err := a.plain(m)
		if err != nil {
			return err
		}
		all = append(all, v)
	}
	a.answers[question] = all
	return nil
}

func (a *asker) record(question string, m proto.Message, err error) error {
	if err != nil {
		return fmt.Errorf("ask for %s: %w", question, err)
	}
	a.answers[question], err = a.plain(m)
	return err
}

func (a *asker) plain(m proto.Message) (v any, err error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	return v, json.Unmarshal([]byte(strings.ReplaceAll(string(text), a.dataDir, "<data>")), &v)
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
			for _, key := range keys(was, is) {
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

func keys(a, b map[string]any) []string {
	var all []string
	for key := range a {
		all = append(all, key)
	}
	for key := range b {
		if _, both := a[key]; !both {
			all = append(all, key)
		}
	}
	return all
}
