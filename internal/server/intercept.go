package server

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/store"
)

// unaryDeadline bounds a handler. Handlers wait for one commit at most, so this is reached on a hung disk only.
const unaryDeadline = 30 * time.Second

func (s *Server) interceptUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	s.unary.RLock()
	defer s.unary.RUnlock()
	ctx, cancel := context.WithTimeout(ctx, unaryDeadline)
	defer cancel()
	err = s.call(info.FullMethod, func() error {
		resp, err = next(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

func (s *Server) interceptStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	return s.call(info.FullMethod, func() error { return next(srv, s.gate.Stream(stream, refusal)) })
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
	agboxv1.SandboxService_CreateSandbox_FullMethodName: true,
	agboxv1.SandboxService_CreateExec_FullMethodName:    true,
	agboxv1.AgentService_CreateAgent_FullMethodName:     true,
	agboxv1.AgentService_PromptAgent_FullMethodName:     false,
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
