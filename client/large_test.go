package client_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// reached is a daemon that counts requests.
type reached struct {
	grpc.ClientConnInterface
	n int
}

func (r *reached) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	r.n++
	return nil
}

// The daemon's gRPC would refuse a larger request with a text about messages, and the client would have sent it all.
func TestATooLargeRequestIsRefusedHere(t *testing.T) {
	r := &reached{}
	c := client.New(r)
	create := func(n int) error {
		_, err := c.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{ConfigYaml: make([]byte, n)})
		return err
	}
	if err := create(agboxv1.MaxRequestBytes - 5); err != nil || r.n != 1 { // with its tag and length
		t.Errorf("the largest one: %v", err)
	}
	err := create(agboxv1.MaxRequestBytes)
	if client.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "has 4194309 bytes") || !strings.Contains(err.Error(), "4 MiB") || r.n != 1 {
		t.Errorf("got %v after %d requests", err, r.n)
	}
}
