package server_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// subscribe opens a subscription and waits until it stands, or returns its error.
func subscribe(ctx context.Context, c agboxv1.SandboxServiceClient) (grpc.ServerStreamingClient[agboxv1.SandboxEvent], error) {
	stream, err := c.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: "boxy", IncludeCurrentSnapshot: true})
	if err != nil {
		return nil, err
	}
	_, err = stream.Recv()
	return stream, err
}

// A stream too many is refused with the name of the limit, of one connection and of all. Other calls and connections go on, and a stream
// that ends makes room.
func TestStreamsHaveLimits(t *testing.T) {
	f := newFixture(t)
	f.server.LimitStreams(2, 3)
	f.create("boxy", agboxv1.SandboxState_SANDBOX_STATE_READY)
	first, second, third := f.overSocket(), f.overSocket(), f.overSocket()
	ctx, closeFirst := context.WithCancel(t.Context())
	defer closeFirst()
	for range 2 {
		if _, err := subscribe(ctx, first); err != nil {
			t.Fatal(err)
		}
	}
	_, err := subscribe(t.Context(), first)
	refused(t, err, codes.ResourceExhausted, "STREAM_LIMIT",
		"the connection has 2 open streams, which is the limit of one: close some, or open another connection",
		map[string]string{"limit": "streams_per_connection", "limit_value": "2"})
	if _, err := first.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: "boxy"}); err != nil {
		t.Errorf("another call on the full connection: %v", err)
	}

	if _, err := subscribe(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	_, err = subscribe(t.Context(), third)
	refused(t, err, codes.ResourceExhausted, "STREAM_LIMIT", "all clients together have 3 open streams, which is the limit: close some",
		map[string]string{"limit": "streams", "limit_value": "3"})

	closeFirst()
	for deadline := time.Now().Add(time.Minute); err != nil && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		_, err = subscribe(t.Context(), third)
	}
	if err != nil {
		t.Errorf("after streams have ended: %v", err)
	}
}
