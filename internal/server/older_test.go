package server_test

import (
	"testing"

	"google.golang.org/grpc/metadata"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// TestWhoIsAnOlderClient: only a number from 100 up declares newer values.
func TestWhoIsAnOlderClient(t *testing.T) {
	f := newFixture(t)
	f.paused("frozen")
	plain := agboxv1.NewSandboxServiceClient(f.older)
	for _, tc := range []struct {
		declares []string
		want     agboxv1.SandboxState
	}{
		{nil, stopped}, {[]string{""}, stopped}, {[]string{"99"}, stopped}, {[]string{"newest"}, stopped},
		{[]string{"100"}, paused}, {[]string{"101"}, paused}, {[]string{"1", "100"}, paused},
	} {
		ctx := t.Context()
		for _, v := range tc.declares {
			ctx = metadata.AppendToOutgoingContext(ctx, agboxv1.ContractKey, v)
		}
		resp, err := plain.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: "frozen"})
		f.must(err)
		if got := resp.GetSandbox().GetState(); got != tc.want {
			t.Errorf("%q reads %s, want %s", tc.declares, got, tc.want)
		}
	}
}
