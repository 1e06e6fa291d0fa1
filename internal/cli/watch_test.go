package cli

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

func TestWatchReadsSandboxesThatLeaveTheListInOrder(t *testing.T) {
	all := []string{"a", "b", "broken", "c", "d", "e"}
	a, _ := scripted{answers: map[string]func(any) (proto.Message, error){
		agboxv1.SandboxService_ListSandboxes_FullMethodName: func(any) (proto.Message, error) { return &agboxv1.ListSandboxesResponse{}, nil },
		agboxv1.SandboxService_GetSandbox_FullMethodName: func(req any) (proto.Message, error) {
			id := req.(*agboxv1.GetSandboxRequest).GetSandboxId()
			if id == "broken" {
				return nil, status.Error(codes.Internal, "broken")
			}
			return &agboxv1.GetSandboxResponse{Sandbox: &agboxv1.SandboxHandle{SandboxId: id, Name: id, State: agboxv1.SandboxState_SANDBOX_STATE_DELETED}}, nil
		},
	}}.app()
	w := &tableWatch{a: a, style: noisy, table: a.sandboxTable(noisy), shown: map[string]string{}}
	for _, id := range all {
		w.shown[id] = ""
	}
	if err := w.look(t.Context()); err != nil {
		t.Errorf("one failing read ended the watch: %v", err)
	}
	got := ""
	for _, row := range w.table.rows {
		got += row[0] + " "
	}
	if want := "NAME a b c d e "; got != want || len(w.shown) != 1 {
		t.Errorf("got rows %q, want %q; still watched: %v", got, want, w.shown)
	}
	w.named = true
	if err := w.look(t.Context()); client.Code(err) != codes.Internal {
		t.Errorf("a named sandbox: got %v", err)
	}
}
