package admission

import (
	"bytes"
	"context"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// requests is a stream of encoded requests.
type requests struct {
	grpc.ServerStream
	codec codec
	rest  [][]byte
}

func (r *requests) Context() context.Context { return context.Background() }

func (r *requests) RecvMsg(v any) error {
	if len(r.rest) == 0 {
		return io.EOF
	}
	whole := r.rest[0]
	r.rest = r.rest[1:]
	half := len(whole) / 2 // as frames of HTTP/2 cut it
	return r.codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(whole[:half]), mem.SliceBuffer(whole[half:])}, v)
}

func stdin(offset int64, data string, last bool) *agboxv1.AttachExecRequest {
	return &agboxv1.AttachExecRequest{Request: &agboxv1.AttachExecRequest_Stdin{Stdin: &agboxv1.StdinChunk{Offset: offset, Data: []byte(data), Close: last}}}
}

func TestRequestsOfAStreamDecodeAsTheProtobufLibraryDoes(t *testing.T) {
	want := []*agboxv1.AttachExecRequest{
		{Request: &agboxv1.AttachExecRequest_Start{Start: &agboxv1.AttachExecStart{ExecId: "exec", Stdin: true, Size: &agboxv1.TerminalSize{Columns: 80, Rows: 24}}}},
		stdin(0, string(bytes.Repeat([]byte("one"), 10<<10)), false), stdin(1<<40, "two", false), stdin(7, "", true), {},
		{Request: &agboxv1.AttachExecRequest_Resize{Resize: &agboxv1.TerminalSize{Columns: 1, Rows: 2}}},
		{Request: &agboxv1.AttachExecRequest_Signal{Signal: 2}}, {Request: &agboxv1.AttachExecRequest_Detach{Detach: true}},
	}
	r := &requests{}
	for _, m := range want {
		data, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		r.rest = append(r.rest, data)
	}
	// Fields of later versions, a message in two parts, of which the later wins, and what does not decode.
	odd, _ := proto.Marshal(stdin(3, "odd", false))
	again, _ := proto.Marshal(stdin(4, "again", false))
	r.rest = append(r.rest, append(odd[:len(odd):len(odd)], 0xf8, 0x3f, 1), append(odd[:len(odd):len(odd)], again...), []byte{0x12, 5, 1}, []byte{0xff})
	s := gate().Stream(r, func(err error) error { return err })
	for i, data := range r.rest {
		var got, library agboxv1.AttachExecRequest
		err, libraryErr := s.RecvMsg(&got), proto.Unmarshal(data, &library)
		if (err == nil) != (libraryErr == nil) || err == nil && !proto.Equal(&got, &library) {
			t.Errorf("message %d: %v, %v; the library: %v, %v", i, &got, err, &library, libraryErr)
		}
		if i < len(want) && !proto.Equal(&got, want[i]) {
			t.Errorf("message %d: %v, want %v", i, &got, want[i])
		}
	}
}

func TestTheDataOfARequestIsNotCopied(t *testing.T) {
	for _, m := range []proto.Message{
		stdin(5, "data", false), &agboxv1.TunnelRequest{Request: &agboxv1.TunnelRequest_Data{Data: []byte("data")}},
		&agboxv1.WriteFileRequest{Request: &agboxv1.WriteFileRequest_Data{Data: []byte("data")}},
		&agboxv1.WriteArchiveRequest{Request: &agboxv1.WriteArchiveRequest_Data{Data: []byte("data")}},
	} {
		data, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got := m.ProtoReflect().New()
		if !share(got, data) || !proto.Equal(got.Interface(), m) {
			t.Fatalf("%T decoded as %v", m, got)
		}
		copy(data[len(data)-len("data"):], "DATA") // of the last field
		if proto.Equal(got.Interface(), m) {
			t.Errorf("%T has a copy of its data", m)
		}
	}
}
