package client_test

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// attachments answers each attachment with the next of its steps.
type attachments struct {
	agboxv1.UnimplementedStreamServiceServer
	steps []func(agboxv1.StreamService_AttachExecServer) error

	mu     sync.Mutex
	starts []*agboxv1.AttachExecStart
}

// last returns the last attachment.
func (a *attachments) last() *agboxv1.AttachExecStart {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.starts[len(a.starts)-1]
}

// AttachExec implements agbox.v1.StreamService.
func (a *attachments) AttachExec(s agboxv1.StreamService_AttachExecServer) error {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	a.mu.Lock()
	n := len(a.starts)
	a.starts = append(a.starts, first.GetStart())
	a.mu.Unlock()
	if n >= len(a.steps) {
		return status.Error(codes.Internal, "one attachment too many")
	}
	return a.steps[n](s)
}

// dial returns a client, and a function that starts its daemon.
func dial(t *testing.T, register func(*grpc.Server)) (c *client.Client, serve func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	c, err := client.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	register(server)
	var serving sync.WaitGroup
	t.Cleanup(func() { _ = c.Close(); server.Stop(); serving.Wait() })
	return c, func() {
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Error(err)
			return
		}
		serving.Go(func() { _ = server.Serve(l) }) // ends with the test
	}
}

func away(agboxv1.StreamService_AttachExecServer) error {
	return status.Error(codes.Unavailable, "the daemon goes away")
}

func attached(s agboxv1.StreamService_AttachExecServer) error {
	return s.Send(&agboxv1.AttachExecResponse{Response: &agboxv1.AttachExecResponse_Attached{Attached: &agboxv1.AttachExecAttached{StdinWindow: 1 << 20}}})
}

func endNow(s agboxv1.StreamService_AttachExecServer) error {
	return errors.Join(attached(s), s.Send(&agboxv1.AttachExecResponse{Response: &agboxv1.AttachExecResponse_End{
		End: &agboxv1.ExecStatus{State: agboxv1.ExecState_EXEC_STATE_FINISHED},
	}}))
}

func TestAReconnectTakesNoInputFromAnotherClient(t *testing.T) {
	takenOver := func(s agboxv1.StreamService_AttachExecServer) error {
		ack := &agboxv1.AttachExecResponse{Response: &agboxv1.AttachExecResponse_StdinAck{StdinAck: &agboxv1.StdinAck{TakenOver: true}}}
		return errors.Join(attached(s), s.Send(ack), away(s))
	}
	lost := func(s agboxv1.StreamService_AttachExecServer) error { return errors.Join(attached(s), away(s)) }
	type step = func(agboxv1.StreamService_AttachExecServer) error
	for name, tc := range map[string]struct {
		steps           []step
		late            bool // the daemon is away before the first
		stdin, takeOver bool // of the last attachment
	}{
		"another client took it over": {steps: []step{takenOver, endNow}},
		"the daemon was away":         {steps: []step{endNow}, late: true, stdin: true},
		"the connection was lost":     {steps: []step{lost, endNow}, stdin: true, takeOver: true},
	} {
		t.Run(name, func(t *testing.T) {
			a := &attachments{steps: tc.steps}
			c, serve := dial(t, func(s *grpc.Server) { agboxv1.RegisterStreamServiceServer(s, a) })
			r, w := io.Pipe()
			defer w.Close()
			o := client.AttachOptions{Stdin: r}
			if tc.late {
				o.OnAway = sync.OnceFunc(serve)
			} else {
				serve()
			}
			if _, err := c.Attach(t.Context(), "e", o); err != nil {
				t.Fatal(err)
			}
			if last := a.last(); last.GetStdin() != tc.stdin || last.GetStdin() && last.GetTakeOver() != tc.takeOver {
				t.Errorf("the last attachment: stdin %v, takes over %v", last.GetStdin(), last.GetTakeOver())
			}
		})
	}
}
