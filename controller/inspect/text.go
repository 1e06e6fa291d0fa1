package inspect

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
	"github.com/agbox/agbox/controller/message"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/controller/sandbox"
	"github.com/agbox/agbox/internal/host/naming"
)

// observed returns one line for the engine and, if it was observed, one for each container and network.
func (e *explanation) observed(seen bool) []string {
	if !seen {
		why := e.link.Problem
		if e.blind != nil {
			why = e.redact(message.Of(e.blind))
		}
		lines := []string{"engine: " + why}
		if e.rec.Standing == plan.Live {
			lines = append(lines, fmt.Sprintf("not observed; recorded as %s since %s", enum.Word(e.rec.State), stamp(e.rec.StateChangedAt)))
		}
		return lines
	}
	lines := []string{fmt.Sprintf("engine: answers, version %s", e.link.Info.Version)}
	for _, ct := range e.world.Containers {
		lines = append(lines, fmt.Sprintf("container %s (%s): %s", ct.Name, part(ct), condition(ct)))
	}
	for _, n := range e.world.Networks {
		line := fmt.Sprintf("network %s (%s): made %s", naming.Network(e.rec.ID), shortID(n.ID), stamp(n.Created))
		if n.Unconfined {
			line += "; its packet filter rules are not those of the network policy"
		}
		lines = append(lines, line)
	}
	return lines
}

// part names the part of the sandbox that a container is.
func part(ct plan.Container) string {
	switch {
	case ct.Service != "":
		return "service " + ct.Service
	case ct.Component == "":
		return "no part of a sandbox"
	}
	return ct.Component
}

// condition returns the state of a container, or how it ended.
func condition(ct plan.Container) string {
	switch {
	case ct.Alive():
		text := ct.Status
		if ct.Health != "" {
			text += ", " + ct.Health
		}
		if ct.Inspected && !ct.StartedAt.IsZero() {
			text += ", started " + stamp(ct.StartedAt)
		}
		return text
	case !ct.Ended():
		return ct.Status
	case !ct.Inspected && ct.EndedWell:
		return "ended with exit code 0"
	case !ct.Inspected:
		return "ended"
	}
	text := fmt.Sprintf("ended with exit code %d", ct.ExitCode)
	if ct.OOMKilled {
		text += ", a process was killed for memory"
	}
	if !ct.FinishedAt.IsZero() {
		text += ", " + stamp(ct.FinishedAt)
	}
	return text
}

// nextSteps returns what a pass would do now, in order. Steps and reasons are named as in the audit lines of the log.
func (e *explanation) nextSteps() (lines []string) {
	lines = e.records(lines, e.plan.Before.Events)
	for _, s := range e.plan.Steps {
		lines = append(lines, e.step(s))
	}
	lines = e.records(lines, e.plan.After.Events)
	for _, a := range e.plan.Asides {
		for _, s := range a.Steps {
			lines = append(lines, e.step(s))
		}
		lines = e.records(lines, a.Events)
	}
	return lines
}

func (e *explanation) records(lines []string, events []*agboxv1.SandboxEvent) []string {
	for _, ev := range events {
		line := "record " + ev.GetEventType().String()
		phase, svc := ev.GetSandboxPhase(), ev.GetService()
		if name := svc.GetServiceName(); name != "" {
			line += " of " + name
		}
		if code := phase.GetErrorCode() + svc.GetErrorCode(); code != "" {
			line += fmt.Sprintf(" (%s: %s)", code, e.redact(phase.GetErrorMessage()+svc.GetErrorMessage()))
		}
		lines = append(lines, line)
	}
	return lines
}

func (e *explanation) step(s plan.Step) string {
	if object := e.object(s); object != "" {
		return fmt.Sprintf("%s %s (%s)", s.Kind, object, s.Reason)
	}
	return fmt.Sprintf("%s (%s)", s.Kind, s.Reason)
}

// object returns the name of a step's object; empty: the sandbox.
func (e *explanation) object(s plan.Step) string {
	switch s.Kind {
	case plan.EnsureImage:
		ref, _ := sandbox.ImageOf(e.sb.Spec, s.Service)
		return ref
	case plan.CreateNetwork:
		return naming.Network(e.rec.ID)
	case plan.RemoveNetwork:
		return shortID(s.ID)
	case plan.RunHook, plan.CancelHook, plan.EndHook:
		if hook, ok := sandbox.HookAt(e.sb.Spec, s.Index); ok {
			return fmt.Sprintf("%d of service %s", hook.Number, hook.Service.GetName())
		}
		return ""
	case plan.CreatePrimary, plan.CopyFiles, plan.Release:
		return naming.Primary(e.rec.ID)
	case plan.CreateService:
		return naming.Service(e.rec.ID, s.Service)
	}
	return e.containerName(s)
}

// containerName is empty for a step without a container.
func (e *explanation) containerName(s plan.Step) string {
	switch {
	case s.ID != "":
		return objectName(e.world, s.ID)
	case s.Service != "":
		return naming.Service(e.rec.ID, s.Service)
	case s.Kind == plan.StartContainer:
		return naming.Primary(e.rec.ID)
	}
	return ""
}

// objectName returns the name of the container with that ID, else the short ID.
func objectName(w plan.World, id string) string {
	for _, ct := range w.Containers {
		if ct.ID == id {
			return ct.Name
		}
	}
	return shortID(id)
}

// shortID shortens an ID as the engine's own tools do.
func shortID(id string) string { return id[:min(len(id), 12)] }

// word returns the word for the value of an enum; empty for UNSPECIFIED.
func word(v protoreflect.Enum) string {
	if v.Number() == 0 {
		return ""
	}
	return enum.Word(v)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
