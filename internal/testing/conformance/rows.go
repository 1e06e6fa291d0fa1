package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agbox/agbox/apis/enum"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// refusal is one row of the table of errors.
type refusal struct {
	code   codes.Code
	reason string
	// message is the whole text; one that ends in "..." is a prefix.
	message  string
	metadata map[string]string
}

// refused compares an error with its row.
func (c *client) refused(err error, want refusal) {
	c.Helper()
	st := status.Convert(err)
	prefix, open := strings.CutSuffix(want.message, "...")
	if st.Code() != want.code || !strings.HasPrefix(st.Message(), prefix) || !open && st.Message() != want.message {
		c.Errorf("got %s %q, want %s %q", st.Code(), st.Message(), want.code, want.message)
		return
	}
	if !strings.Contains(st.Message(), " ") {
		c.Errorf("%q would be taken for an ID", st.Message())
	}
	info := infoOfError(err)
	if info.GetDomain() != "agents-sandbox" || info.GetReason() != want.reason || !maps.Equal(info.GetMetadata(), want.metadata) {
		c.Errorf("got %s %s %v, want %s %v", info.GetDomain(), info.GetReason(), info.GetMetadata(), want.reason, want.metadata)
	}
}

func infoOfError(err error) *errdetails.ErrorInfo {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info
		}
	}
	return nil
}

// errOf drops the answer of a call.
func errOf[T any](_ T, err error) error { return err }

func invalid(field, message string) refusal {
	return refusal{codes.InvalidArgument, "INVALID_SPEC", message, map[string]string{"field": field}}
}

// aboutSandbox and aboutExec are refusals whose message has one %s, the ID.
func aboutSandbox(code codes.Code, reason, id, format string) refusal {
	return refusal{code, reason, fmt.Sprintf(format, id), map[string]string{"sandbox_id": id}}
}

func aboutExec(code codes.Code, reason, id, format string) refusal {
	return refusal{code, reason, fmt.Sprintf(format, id), map[string]string{"exec_id": id}}
}

func sandboxNotFound(id string) refusal {
	return aboutSandbox(codes.NotFound, "SANDBOX_NOT_FOUND", id, "sandbox %s was not found")
}

func sandboxNotReady(id string) refusal {
	return aboutSandbox(codes.FailedPrecondition, "SANDBOX_NOT_READY", id, "sandbox %s is not ready")
}

func notStopped(id string) refusal {
	return aboutSandbox(codes.FailedPrecondition, "SANDBOX_INVALID_STATE", id, "sandbox %s is not stopped")
}

func notReady(id string) refusal {
	return aboutSandbox(codes.FailedPrecondition, "SANDBOX_INVALID_STATE", id, "sandbox %s is not ready")
}

// row is one event as the table of events has it: "TYPE STATE details". State is without its prefix, "-" when unset.
func row(e *event) string {
	state := "-"
	if e.GetSandboxState() != unset {
		state = enum.Word(e.GetSandboxState())
	}
	text := strings.TrimPrefix(e.GetEventType().String(), "SANDBOX_") + " " + state
	for _, detail := range details(e) {
		if _, value, _ := strings.Cut(detail, "="); value != "" {
			text += " " + detail
		}
	}
	return text
}

// details are all that an event says beside its message texts; what is empty is left out by row.
func details(e *event) []string {
	switch {
	case e.GetSandboxPhase() != nil:
		p := e.GetSandboxPhase()
		return []string{"phase=" + p.GetPhase(), "reason=" + p.GetReason(), "error_code=" + p.GetErrorCode()}
	case e.GetExec() != nil:
		x := e.GetExec()
		state := enum.Word(x.GetExecState())
		return []string{"exec_id=" + x.GetExecId(), "exec_state=" + state, fmt.Sprintf("exit_code=%d", x.GetExitCode()), "error_code=" + x.GetErrorCode()}
	case e.GetService() != nil:
		return []string{"service_name=" + e.GetService().GetServiceName(), "error_code=" + e.GetService().GetErrorCode()}
	}
	return nil
}

// isOurs says that an event's type is none of the contract of old clients.
func isOurs(e *event) bool { return e.GetEventType() >= agboxv1.FirstAddition }

// rows compares events with rows; ours may stand between those of the contract.
func (c *client) rows(list []*event, want ...string) {
	c.Helper()
	c.allRows(slices.DeleteFunc(slices.Clone(list), isOurs), want...)
}

// allRows compares events with rows, ours included, but for what a pull tells.
func (c *client) allRows(list []*event, want ...string) {
	c.Helper()
	var got []string
	for _, e := range list {
		if e.GetEventType() != agboxv1.EventType_IMAGE_PULLING {
			got = append(got, row(e))
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		c.Errorf("events are\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// sentence checks a text for people.
func (c *client) sentence(what, text string) {
	c.Helper()
	if !strings.Contains(text, " ") || strings.ContainsAny(text, "\n\r") {
		c.Errorf("%s is no sentence: %q", what, text)
	}
}

func isTerminal(s agboxv1.ExecState) bool { return s != agboxv1.ExecState_EXEC_STATE_RUNNING }
