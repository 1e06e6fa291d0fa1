package server

import (
	"errors"

	"github.com/containerd/errdefs"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/agbox/agbox/internal/manifest"
	"github.com/agbox/agbox/internal/server/admission"
	"github.com/agbox/agbox/store"
)

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
