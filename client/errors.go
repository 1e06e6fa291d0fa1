package client

import (
	"errors"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Error is the error of a call that the daemon refused or that did not reach it.
type Error struct {
	// Code is the daemon's. Without one it is Unavailable, or Unauthenticated if another host refuses this client, does not exist or has no
	// agboxd, so that waiting is useless.
	Code codes.Code
	// Reason as in the API's error table, such as SANDBOX_NOT_FOUND; empty when the error did not come from agboxd.
	Reason string
	// Message is a sentence for users.
	Message string
	// Metadata names the object: sandbox_id, exec_id, field, ...
	Metadata map[string]string
	// Fields are all broken rules of an invalid request; empty otherwise.
	Fields []FieldError

	status *status.Status
}

// FieldError is one broken rule of a request.
type FieldError struct{ Field, Message string }

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// GRPCStatus returns the status as it was received, or for an error of this package the code and the message.
func (e *Error) GRPCStatus() *status.Status {
	if e.status == nil {
		return status.New(e.Code, e.Message)
	}
	return e.status
}

// Code returns the code of err: OK for nil, Unknown for errors that are not of this package or gRPC.
func Code(err error) codes.Code { return status.Code(err) }

// answerOf returns the answer that err wraps, or an empty one.
func answerOf(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{}
}

// Reason returns the reason of err, or "".
func Reason(err error) string { return answerOf(err).Reason }

// ImmutableFields returns the paths for which an UpdateSandbox was refused: they differ and can't be changed in place. It
// is empty for every other error. A list too long for an error ends with "...".
func ImmutableFields(err error) []string {
	e := answerOf(err)
	if e.Reason != "SANDBOX_FIELD_IMMUTABLE" || e.Metadata["fields"] == "" {
		return nil
	}
	return strings.Split(e.Metadata["fields"], ",")
}

// ResumeRefusal returns why the containers of a sandbox can't be started again, or "" for every other error.
func ResumeRefusal(err error) string { return answerOf(err).Metadata["refusal"] }

// IsNotFound reports whether the object does not exist.
func IsNotFound(err error) bool { return is(err, codes.NotFound) }

// IsAlreadyExists reports whether an ID or name is in use.
func IsAlreadyExists(err error) bool { return is(err, codes.AlreadyExists) }

// IsFailedPrecondition reports whether the object is in a state that does not allow the call.
func IsFailedPrecondition(err error) bool { return is(err, codes.FailedPrecondition) }

// IsAlreadyPaused reports whether a PauseSandbox was refused because the sandbox is PAUSED.
func IsAlreadyPaused(err error) bool { return Reason(err) == "SANDBOX_ALREADY_PAUSED" }

// IsInvalidArgument reports whether the request broke a rule; see Error.Fields.
func IsInvalidArgument(err error) bool { return is(err, codes.InvalidArgument) }

// IsOutOfRange reports whether an event anchor lies outside the retained history.
func IsOutOfRange(err error) bool { return is(err, codes.OutOfRange) }

// IsUnavailable reports whether the daemon could not be reached, or could not record the request now. The call
// may have been carried out; repeat creates only with an ID of your own.
func IsUnavailable(err error) bool { return is(err, codes.Unavailable) }

// is reports whether err has the code, which must not be OK.
func is(err error, code codes.Code) bool { return answerOf(err).Code == code }

// fromStatus turns a gRPC error into an *Error.
func (c *Client) fromStatus(err error) error {
	if err == nil {
		return nil
	}
	st := status.Convert(err)
	e := &Error{Code: st.Code(), Message: st.Message(), status: st}
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			e.Reason, e.Metadata = d.GetReason(), d.GetMetadata()
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				e.Fields = append(e.Fields, FieldError{Field: v.GetField(), Message: v.GetDescription()})
			}
		}
	}
	switch {
	case e.Reason != "": // agboxd itself said so
	case e.Code == codes.Unavailable && c.via == nil:
		e.Message = "agboxd does not answer: " + st.Message()
	case e.Code == codes.Unavailable:
		e.Message = c.via.unreachable(st.Message())
		if c.via.refused() {
			e.Code = codes.Unauthenticated
			e.status = status.New(e.Code, st.Message())
		}
	case e.Code == codes.DeadlineExceeded:
		e.Message = "agboxd did not answer in time; it may have carried the request out all the same"
	}
	return e
}

// IsUnanswered reports whether a request may have been carried out although it has an error: the daemon was away, or late. Repeat the request
// with the same ID, or cancel what it may have made.
func IsUnanswered(err error) bool { return IsUnavailable(err) || Code(err) == codes.DeadlineExceeded }
