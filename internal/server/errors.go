package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/google/uuid"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/store"
)

const (
	domain        = "agents-sandbox"
	reasonInvalid = "INVALID_SPEC"
	// reasonDraining is the reason of the UNAVAILABLE with which streams end when the daemon stops after a drain.
	reasonDraining = "DRAINING"

	// An error is sent in HTTP/2 trailers, of which some clients accept at most 8 KiB.
	maxViolations   = 8
	maxMessageBytes = 1536
	maxTextBytes    = 200
)

// errStopping ends streams when the daemon stops.
var errStopping = errors.New("agboxd is stopping")

// invalid is one broken rule that is not a matter of pure validation.
func invalid(field, message string) error {
	return validate.Errors{{Field: field, Message: message}}
}

// toStatus maps an error of a handler to a status of the contract. It does not send the texts of unclassified errors.
func (s *Server) toStatus(method string, err error) error {
	var refusal *store.Refusal
	var broken validate.Errors
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refusal):
		c, _ := classOf(refusal.Class)
		return build(c, refusal.Reason, refusal.Message, refusal.Metadata)
	case errors.As(err, &broken):
		return invalidStatus(broken)
	case errors.Is(err, errStopping):
		reason, message := s.stoppingReason()
		return build(codes.Unavailable, reason, message, nil)
	case errors.Is(err, context.Canceled):
		return plain(codes.Canceled, "the call was cancelled")
	case errors.Is(err, context.DeadlineExceeded):
		return plain(codes.DeadlineExceeded, "the call took too long; whether it was recorded is not known")
	}
	if _, fromTransport := status.FromError(err); fromTransport {
		return err // the stream has ended: the client does not read this
	}
	return s.trouble(method, err)
}

// stoppingReason returns the text and the reason of the status with which streams end.
func (s *Server) stoppingReason() (reason, message string) {
	d := s.deps.Store.Drain()
	switch {
	case d == nil:
		return code.Code_UNAVAILABLE.String(), errStopping.Error()
	case d.GetReason() != "":
		return reasonDraining, "agboxd is draining and stopping: " + d.GetReason()
	}
	return reasonDraining, "agboxd is draining and stopping"
}

// trouble logs an internal error, and returns a status with the request ID of the log line instead of the error's text.
func (s *Server) trouble(method string, err error) error {
	c, text := classOf(err)
	request, level := uuid.NewString()[:8], slog.LevelWarn
	if c == codes.Internal || c == codes.DataLoss {
		level = slog.LevelError
	}
	s.deps.Logger.Log(context.Background(), level, "call failed", "method", method, "request", request, "code", c.String(), "err", err)
	return plain(c, fmt.Sprintf("%s (request %s)", text, request))
}

// classOf returns the code of an error's class, and a text for clients without internals.
func classOf(err error) (c codes.Code, text string) {
	const internal = "internal error"
	for _, row := range []struct {
		is   func(error) bool
		code codes.Code
		text string
	}{
		{errdefs.IsDataLoss, codes.DataLoss, "a stored record does not decode"},
		{errdefs.IsNotFound, codes.NotFound, internal},
		{errdefs.IsAlreadyExists, codes.AlreadyExists, internal},
		{errdefs.IsPermissionDenied, codes.PermissionDenied, internal},
		{errdefs.IsInvalidArgument, codes.InvalidArgument, internal},
		{errdefs.IsFailedPrecondition, codes.FailedPrecondition, "not possible in the present state"},
		{errdefs.IsOutOfRange, codes.OutOfRange, internal},
		{errdefs.IsResourceExhausted, codes.ResourceExhausted, internal},
		{errdefs.IsAborted, codes.Aborted, "something else changed it at the same time; try again"},
		{errdefs.IsUnavailable, codes.Unavailable, "not available at the moment, nothing was recorded; try again"},
	} {
		if row.is(err) {
			return row.code, row.text
		}
	}
	return codes.Internal, internal
}

// plain returns a status whose reason is the code's own name.
func plain(c codes.Code, message string) error {
	return build(c, code.Code(c).String(), message, nil)
}

func build(c codes.Code, reason, message string, metadata map[string]string, more ...protoadapt.MessageV1) error {
	st := status.New(c, cut(message, maxMessageBytes))
	info := &errdetails.ErrorInfo{Reason: reason, Domain: domain, Metadata: metadata}
	detailed, err := st.WithDetails(append([]protoadapt.MessageV1{info}, more...)...)
	if err != nil {
		return st.Err()
	}
	return detailed.Err()
}

// invalidStatus names the first broken rule's field, and all of the rules in the text and in a BadRequest.
func invalidStatus(broken validate.Errors) error {
	bad := &errdetails.BadRequest{}
	for _, rule := range broken[:min(len(broken), maxViolations)] {
		bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{
			Field: rule.Field, Description: cut(rule.Message, maxTextBytes),
		})
	}
	metadata := map[string]string{"field": broken[0].Field}
	return build(codes.InvalidArgument, reasonInvalid, rules(broken), metadata, bad)
}

func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "..."
}
