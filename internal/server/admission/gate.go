package admission

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	_ "google.golang.org/grpc/encoding/proto" // the codec that is wrapped
)

// ErrBusy means that other requests used the memory until the deadline of the call, or that too many requests already wait.
var ErrBusy = errors.New("agboxd works on other large requests; try again")

// Limits bound the memory of requests, in bytes by the costs of this package. A request whose cost is below Free is not counted and
// does not wait.
type Limits struct {
	Request, Total, Free int64
	// Waiting bounds the sum of the encoded sizes of waiting requests, in bytes; Patience bounds the wait of a request with a later
	// deadline.
	Waiting  int64
	Patience time.Duration
	// Texts has, by the full names of fields whose values are parsed, the additional cost of parsing a value.
	Texts map[protoreflect.FullName]func([]byte) int64
}

// Gate admits requests. Its codec must be the server's.
type Gate struct {
	limits  Limits
	memory  *semaphore.Weighted
	waiting atomic.Int64
}

// New returns a gate. Request is at most Total.
func New(l Limits) *Gate {
	return &Gate{limits: l, memory: semaphore.NewWeighted(l.Total)}
}

// Codec is the codec of a server whose requests pass the gate. It decodes requests of handlers that are not wrapped by Limit or
// Stream without a bound.
func (g *Gate) Codec() grpc.ServerOption {
	return grpc.ForceServerCodecV2(codec{encoding.GetCodecV2("proto")})
}

// Limit returns the service with all its unary handlers behind the gate. refused makes the error of a call out of one of the gate's:
// *TooCostly, ErrBusy, or of an encoding that is broken.
func (g *Gate) Limit(desc grpc.ServiceDesc, refused func(method string, err error) error) *grpc.ServiceDesc {
	methods := make([]grpc.MethodDesc, 0, len(desc.Methods))
	for _, m := range desc.Methods {
		full, handle := "/"+desc.ServiceName+"/"+m.MethodName, m.Handler
		m.Handler = func(srv any, ctx context.Context, decode func(any) error, i grpc.UnaryServerInterceptor) (any, error) {
			in := &incoming{ctx: ctx, gate: g}
			defer in.release()
			return handle(srv, ctx, func(v any) error {
				return in.decode(v, decode, func(err error) error { return refused(full, err) })
			}, i)
		}
		methods = append(methods, m)
	}
	desc.Methods = methods
	return &desc
}

// Stream returns the stream with its requests behind the gate. The memory of a request is released as soon as it is decoded, because a
// stream lasts long and its requests are small. The fields of type bytes of a request are valid until the next RecvMsg, which uses their
// memory again.
func (g *Gate) Stream(s grpc.ServerStream, refused func(error) error) grpc.ServerStream {
	return &stream{ServerStream: s, gate: g, refused: refused}
}

type stream struct {
	grpc.ServerStream
	gate    *Gate
	refused func(error) error
	last    mem.Buffer // of the request that was received last; nil before the first
}

// RecvMsg implements grpc.ServerStream.
func (s *stream) RecvMsg(v any) error {
	if s.last != nil {
		s.last.Free()
		s.last = nil
	}
	in := &incoming{ctx: s.Context(), gate: s.gate, keep: &s.last}
	defer in.release()
	return in.decode(v, s.ServerStream.RecvMsg, s.refused)
}

// incoming is one request on its way through the codec.
type incoming struct {
	ctx     context.Context //nolint:containedctx // the codec gets no other
	gate    *Gate
	message proto.Message
	keep    *mem.Buffer // gets the encoded message, whose bytes the decoded one may share; nil: they share nothing
	held    int64
	err     error
}

func (in *incoming) decode(v any, decode func(any) error, refused func(error) error) error {
	message, ok := v.(proto.Message)
	if !ok {
		return decode(v)
	}
	in.message = message
	if err := decode(in); err != nil {
		return err
	}
	if in.err != nil {
		return refused(in.err)
	}
	return nil
}

// read decodes data once there is memory for it.
func (in *incoming) read(data []byte) error {
	l := &in.gate.limits
	m := meter{left: l.Request, limit: l.Request, texts: l.Texts}
	if err := m.message(in.message.ProtoReflect().Descriptor(), data, 0); err != nil {
		return err
	}
	if cost := l.Request - m.left; cost > l.Free {
		if err := in.gate.acquire(in.ctx, cost, int64(len(data))); err != nil {
			return err
		}
		in.held = cost
	}
	if in.keep != nil && share(in.message.ProtoReflect(), data) {
		return nil
	}
	return proto.Unmarshal(data, in.message)
}

func (g *Gate) acquire(ctx context.Context, cost, encoded int64) error {
	if g.memory.TryAcquire(cost) {
		return nil
	}
	defer g.waiting.Add(-encoded)
	if g.waiting.Add(encoded) > g.limits.Waiting {
		return ErrBusy
	}
	ctx, cancel := context.WithTimeout(ctx, g.limits.Patience)
	defer cancel()
	if g.memory.Acquire(ctx, cost) != nil {
		return ErrBusy
	}
	return nil
}

func (in *incoming) release() {
	if in.held > 0 {
		in.gate.memory.Release(in.held)
		in.held = 0
	}
}

// codec decodes requests by their gate, and everything else by the codec of gRPC.
type codec struct{ encoding.CodecV2 }

// Unmarshal implements encoding.CodecV2. An error of the gate is kept in the request: gRPC would make an INTERNAL of it.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*incoming)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	if in.keep != nil {
		*in.keep = whole
	} else {
		defer whole.Free()
	}
	in.err = in.read(whole.ReadOnlyData())
	return nil
}
