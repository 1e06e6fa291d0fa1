package conformance

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// undeclared are clients of the older contract: they declare nothing, and fail on an enum value that they do not know.
func undeclared(t testing.TB, conn grpc.ClientConnInterface) grpc.ClientConnInterface {
	return &strict{t, conn}
}

type strict struct {
	t    testing.TB
	conn grpc.ClientConnInterface
}

func (s *strict) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	err := s.conn.Invoke(ctx, method, args, reply, opts...)
	s.check(method, reply)
	return err
}

func (s *strict) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := s.conn.NewStream(ctx, desc, method, opts...)
	return &strictStream{stream, s, method}, err
}

type strictStream struct {
	grpc.ClientStream
	*strict
	method string
}

func (s *strictStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	s.check(s.method, m)
	return err
}

// check reads the enums of a message, wherever they are in it.
func (s *strict) check(method string, m any) {
	s.t.Helper()
	err := protorange.Range(m.(proto.Message).ProtoReflect(), func(p protopath.Values) error {
		last := p.Index(-1)
		if n, ok := last.Value.Interface().(protoreflect.EnumNumber); ok && n >= agboxv1.FirstAddition {
			s.t.Errorf("%s: an older client does not know the value %d of %s", method, n, p.Path)
		}
		return nil
	})
	if err != nil {
		s.t.Error(err)
	}
}
