package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// historyTimeout is the timeout for reading one sandbox's events.
const historyTimeout = 30 * time.Second

// verbs maps event types to the calls that cause them.
var verbs = map[agboxv1.EventType]string{
	agboxv1.EventType_SANDBOX_STOP_REQUESTED:   "stop",
	agboxv1.EventType_SANDBOX_PAUSE_REQUESTED:  "pause",
	agboxv1.EventType_SANDBOX_DELETE_REQUESTED: "delete",
}

// clockReasons lists the reasons of changes that only timers cause. The storm's configuration sets each timer to hours.
var clockReasons = []string{"idle_ttl", "cleanup_ttl", "stopped_gc", "timeout", "demoted"}

// histories checks every event of every accepted sandbox, including those deleted meanwhile.
func (s *storm) histories(ctx context.Context, api agboxv1.SandboxServiceClient) {
	for id := range s.book.sandboxes {
		events, err := history(ctx, api, id)
		if err != nil {
			s.book.problem("the events of %s, after %d of them: %v", id, len(events), err)
			continue
		}
		for _, problem := range judgeHistory(id, events, s.book.tries[id], s.has(faultOutside)) {
			s.book.problem("%s", problem)
		}
		s.book.count("histories read")
	}
}

// history reads all events of a sandbox that does not change during the call.
func history(ctx context.Context, api agboxv1.SandboxServiceClient, id string) (events []*agboxv1.SandboxEvent, err error) {
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	resp, err := api.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: id})
	if err != nil {
		return nil, err
	}
	stream, err := api.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id})
	if err != nil {
		return nil, err
	}
	for len(events) == 0 || events[len(events)-1].GetSequence() < resp.GetSandbox().GetLastEventSequence() {
		ev, err := stream.Recv()
		if err != nil {
			return events, err
		}
		events = append(events, ev)
	}
	return events, nil
}

// judgeHistory returns the events that no client and no fault explains. tries counts the calls of clients by verb, answered or not: a call
// with a lost answer may have been accepted.
func judgeHistory(id string, events []*agboxv1.SandboxEvent, tries map[string]int, outside bool) (problems []string) {
	requested := map[string]int{}
	for i, ev := range events {
		what := fmt.Sprintf("event %d of %s, %s,", ev.GetSequence(), id, ev.GetEventType())
		reason := ev.GetSandboxPhase().GetReason()
		if ev.GetSequence() != uint64(i+1) {
			problems = append(problems, fmt.Sprintf("%s is number %d of its history", what, i+1))
		}
		if slices.Contains(clockReasons, reason) {
			problems = append(problems, fmt.Sprintf("%s is by %s, and no such time has passed", what, reason))
		}
		if verb := verbs[ev.GetEventType()]; verb != "" {
			if requested[verb]++; requested[verb] > tries[verb] {
				problems = append(problems, fmt.Sprintf("%s is the %s number %d, and clients asked for %d", what, verb, requested[verb], tries[verb]))
			}
		}
		if outside {
			continue
		}
		switch ev.GetEventType() {
		case agboxv1.EventType_SANDBOX_FAILED:
			problems = append(problems, fmt.Sprintf("%s has no fault that explains it: %s: %s", what, ev.GetSandboxPhase().GetErrorCode(), ev.GetSandboxPhase().GetErrorMessage()))
		case agboxv1.EventType_SANDBOX_STOPPED:
			if requested["stop"] == 0 {
				problems = append(problems, what+" was not asked for")
			}
		case agboxv1.EventType_SANDBOX_DELETED:
			if requested["delete"] == 0 {
				problems = append(problems, what+" was not asked for")
			}
		case agboxv1.EventType_EXEC_FAILED:
			if ev.GetExec().GetErrorCode() == "EXEC_LOST" {
				problems = append(problems, fmt.Sprintf("%s says that exec %s is lost without a fault that explains it", what, ev.GetExec().GetExecId()))
			}
		}
	}
	return problems
}
