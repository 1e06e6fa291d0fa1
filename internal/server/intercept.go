package server

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/manifest"
	"github.com/agbox/agbox/internal/server/admission"
	"github.com/agbox/agbox/store"
)

// unaryDeadline bounds a handler. Handlers wait for one commit at most, so this is reached on a hung disk only.
const unaryDeadline = 30 * time.Second

// interceptUnary runs one handler and shows its response as the caller knows it. gRPC drops the response that a handler returns beside an
// error.
func (s *Server) interceptUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	ctx, cancel := context.WithTimeout(ctx, unaryDeadline)
	defer cancel()
	begun := time.Now()
	err = s.call(info.FullMethod, func() error {
		resp, err = next(ctx, req)
		return err
	})
	s.audit(ctx, info.FullMethod, req, begun, err)
	if err == nil && isOlder(ctx) {
		showOlder(resp)
	}
	return resp, err
}

func (s *Server) interceptStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	stream = s.gate.Stream(stream, refusal)
	if isOlder(stream.Context()) {
		stream = olderStream{stream}
	}
	begun := time.Now()
	err := s.call(info.FullMethod, func() error {
		done, err := s.openStream(connectionOf(stream.Context()))
		if err != nil {
			return err
		}
		defer done()
		return next(srv, stream)
	})
	s.audit(stream.Context(), info.FullMethod, nil, begun, err)
	return err
}

// openStream counts a stream until done is called. Errors: Refusal STREAM_LIMIT, which names the limit.
func (s *Server) openStream(c *connection) (done func(), err error) {
	done = func() {
		c.streams.Add(-1)
		s.open.Add(-1)
	}
	ofOne, ofAll := c.streams.Add(1), s.open.Add(1)
	switch {
	case ofOne > s.maxStreams:
		err = tooManyStreams("streams_per_connection", s.maxStreams, "the connection has %d open streams, which is the limit of one: close some, or open another connection")
	case ofAll > s.maxAllStreams:
		err = tooManyStreams("streams", s.maxAllStreams, "all clients together have %d open streams, which is the limit: close some")
	default:
		return done, nil
	}
	done()
	return nil, err
}

func tooManyStreams(limit string, most int64, text string) error {
	return &store.Refusal{
		Class: errdefs.ErrResourceExhausted, Reason: reasonStreamLimit, Message: fmt.Sprintf(text, most),
		Metadata: map[string]string{"limit": limit, "limit_value": strconv.FormatInt(most, 10)},
	}
}

// call runs one handler: panics become errors, errors become statuses, and every outcome is counted.
func (s *Server) call(method string, run func() error) error {
	start := time.Now()
	err := s.toStatus(method, recovered(func() error { return s.gated(method, run) }))
	s.deps.Observe(method, status.Code(err), time.Since(start))
	return err
}

func recovered(run func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return run()
}

// growing are the calls that create something and so need disk space. Calls that end or remove something are always allowed. Those that
// are true reserve an ID forever, so they need to know that it is free.
var growing = map[string]bool{
	agboxv1.SandboxService_CreateSandbox_FullMethodName:        true,
	agboxv1.SandboxService_CreateExec_FullMethodName:           true,
	agboxv1.SandboxService_CreateSnapshot_FullMethodName:       true,
	agboxv1.TemplateService_CreateTemplateBuild_FullMethodName: false,
	agboxv1.TemplateService_UploadTemplateFiles_FullMethodName: false,
	agboxv1.TemplateService_StartTemplateBuild_FullMethodName:  false,
	agboxv1.AgentService_CreateAgent_FullMethodName:            true,
	agboxv1.AgentService_PromptAgent_FullMethodName:            false,
}

// reasonDiskFull is the reason of a call that was refused because the disk is full. Its code is UNAVAILABLE, as for other errors of the
// store, because known clients retry that code.
const reasonDiskFull = "DISK_FULL"

// gated refuses the growing calls while the disk is too full, and answers that are unknown while records are being rebuilt: that an ID is
// free, and NOT_FOUND. A lookup that started during the rebuild counts as one.
func (s *Server) gated(method string, run func() error) error {
	reserving, grows := growing[method]
	if grows {
		if why := s.deps.NoRoom(); why != "" {
			return &store.Refusal{Reason: reasonDiskFull, Message: why, Class: errdefs.ErrUnavailable}
		}
	}
	why := s.deps.Rebuilding()
	if why == "" {
		return run()
	}
	unknown := &store.Refusal{Reason: code.Code_UNAVAILABLE.String(), Message: why, Class: errdefs.ErrUnavailable}
	if reserving {
		return unknown
	}
	if err := run(); !errdefs.IsNotFound(err) {
		return err
	}
	return unknown
}

// Bounds of the memory of requests, by the costs of admission. The largest valid spec, with 1 MiB of environment variables, costs less
// than half of requestMemory; so does a YAML text of 1 MiB with an anchor or tag mark in every tenth byte.
const (
	requestMemory  = 192 << 20
	requestsMemory = 256 << 20
	// freeMemory is far above the cost of calls without a spec or a prompt, so those never wait.
	freeMemory = 256 << 10
	// waitingBytes is enough for 16 requests of the largest size.
	waitingBytes = 64 << 20
)

func newGate() *admission.Gate {
	return admission.New(admission.Limits{
		Request: requestMemory, Total: requestsMemory, Free: freeMemory, Waiting: waitingBytes, Patience: unaryDeadline,
		Texts: map[protoreflect.FullName]func([]byte) int64{
			"agbox.v1.CreateSandboxRequest.config_yaml": manifest.ParseCost,
			"agbox.v1.UpdateSandboxRequest.config_yaml": manifest.ParseCost,
		},
	})
}

// refuse makes the error of a call whose request was not admitted.
func (s *Server) refuse(method string, err error) error {
	return s.call(method, func() error { return refusal(err) })
}

func refusal(err error) error {
	var costly *admission.TooCostly
	switch {
	case errors.As(err, &costly):
		return invalid(costly.Field, costly.Error())
	case errors.Is(err, admission.ErrBusy):
		return &store.Refusal{Reason: code.Code_RESOURCE_EXHAUSTED.String(), Message: err.Error(), Class: errdefs.ErrResourceExhausted}
	}
	return invalid("request", "the request does not decode: "+err.Error())
}
