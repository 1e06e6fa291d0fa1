package cli

import (
	"bytes"
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// slowAccept is a daemon that takes a second to record an exec, whether or not the caller is still there by then.
type slowAccept struct {
	grpc.ClientConnInterface
	takes     time.Duration
	recorded  chan struct{}
	cancelled bool
	mute      bool // no answer arrives
}

func (s *slowAccept) Invoke(ctx context.Context, method string, _, reply any, _ ...grpc.CallOption) error {
	switch method {
	case agboxv1.SandboxService_ListSandboxes_FullMethodName:
		proto.Merge(reply.(proto.Message), &agboxv1.ListSandboxesResponse{Sandboxes: []*agboxv1.SandboxHandle{{SandboxId: "abcd", Name: "web"}}})
		return nil
	case agboxv1.SandboxService_CreateExec_FullMethodName:
		time.AfterFunc(s.takes, func() { close(s.recorded) })
		answered := s.recorded
		if s.mute {
			answered = nil
		}
		select {
		case <-answered:
			return nil
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	case agboxv1.SandboxService_CancelExec_FullMethodName:
		select {
		case <-s.recorded:
			s.cancelled = true
			return nil
		default:
			return status.Error(codes.NotFound, "no such exec")
		}
	}
	return status.Error(codes.Unimplemented, method)
}

func TestCommandThatIsAcceptedAfterASignalIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowAccept{takes: time.Second, recorded: make(chan struct{})}
		var out bytes.Buffer
		a := &app{Streams: Streams{Out: &out, Err: &out}, notes: &notes{out: &out}, conn: func() *client.Client { return client.New(s) }}
		ctx, interrupt := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Millisecond, func() { interrupt(&Signalled{Signal: syscall.SIGINT}) })
		err := a.exec(ctx, "web", &agboxv1.CreateExecRequest{ExecId: "one1", Command: []string{"sleep"}}, execOptions{detach: true})
		if code := a.finish(ctx, err); code != 130 || !s.cancelled || out.Len() > 0 {
			t.Errorf("exit code %d, cancelled %v, printed %q", code, s.cancelled, out.String())
		}
	})
}

func TestCommandThatIsAcceptedWithoutAnAnswerIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowAccept{takes: time.Second, recorded: make(chan struct{}), mute: true}
		a := &app{notes: &notes{}, conn: func() *client.Client { return client.New(s) }}
		err := a.exec(t.Context(), "web", &agboxv1.CreateExecRequest{ExecId: "one1", Command: []string{"sleep"}}, execOptions{detach: true})
		if exit, ok := errors.AsType[*exitError](err); !ok || exit.code != exitNotRun || !s.cancelled {
			t.Errorf("%v, cancelled %v", err, s.cancelled)
		}
	})
}

func TestSignalDoesNotWaitLongForAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowAccept{takes: time.Minute, recorded: make(chan struct{})}
		a := &app{notes: &notes{}, conn: func() *client.Client { return client.New(s) }}
		ctx, interrupt := context.WithCancelCause(t.Context())
		interrupt(&Signalled{Signal: syscall.SIGTERM})
		begin := time.Now()
		err := a.createExec(ctx, &agboxv1.CreateExecRequest{ExecId: "one1"})
		if took := time.Since(begin); took != answerPatience || client.Code(err) != codes.Canceled && !errors.Is(err, context.Canceled) {
			t.Errorf("after %s: %v", took, err)
		}
		<-s.recorded
	})
}
