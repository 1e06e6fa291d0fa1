package server_test

import (
	"context"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/server"
	"github.com/agbox/agbox/store"
)

func TestExplainAndGarbageAreHandedOn(t *testing.T) {
	f := newFixture(t, func(d *server.Deps) {
		d.Explain = func(ctx context.Context, id string) (*agboxv1.ExplainResponse, error) {
			if _, err := d.Store.Sandbox(ctx, id); err != nil {
				return nil, err
			}
			return &agboxv1.ExplainResponse{Desired: "run"}, nil
		}
		d.CollectGarbage = func(_ context.Context, req *agboxv1.CollectGarbageRequest) ([]*agboxv1.GarbageItem, error) {
			if req.GetUnknown() {
				return nil, &store.Refusal{Reason: "UNAVAILABLE", Message: "who knows", Class: errdefs.ErrUnavailable}
			}
			return []*agboxv1.GarbageItem{{Kind: "network", Removed: !req.GetDryRun()}}, nil
		}
	})
	f.create("box-1", agboxv1.SandboxState_SANDBOX_STATE_READY)
	got, err := f.admin.Explain(t.Context(), &agboxv1.ExplainRequest{SandboxId: "box-1"})
	if err != nil || got.GetDesired() != "run" {
		t.Errorf("explained %v, %v", got, err)
	}
	if _, err := f.admin.Explain(t.Context(), &agboxv1.ExplainRequest{SandboxId: "none"}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
	for _, req := range []*agboxv1.ExplainRequest{{}, {SandboxId: "box-1", AgentId: "ada"}} {
		if _, err := f.admin.Explain(t.Context(), req); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", req, err)
		}
	}
	list, err := f.admin.CollectGarbage(t.Context(), &agboxv1.CollectGarbageRequest{DryRun: true})
	if err != nil || len(list.GetItems()) != 1 || list.GetItems()[0].GetRemoved() {
		t.Errorf("listed %v, %v", list, err)
	}
	_, err = f.admin.CollectGarbage(t.Context(), &agboxv1.CollectGarbageRequest{Unknown: true})
	if status.Code(err) != codes.Unavailable || status.Convert(err).Message() != "who knows" {
		t.Error(err)
	}
}

func TestDoctor(t *testing.T) {
	f := newFixture(t, func(d *server.Deps) {
		d.Doctor = func() []*agboxv1.DoctorCheck { return []*agboxv1.DoctorCheck{{Name: "engine", Status: "ok"}} }
	})
	got, err := f.admin.Doctor(t.Context(), &agboxv1.DoctorRequest{})
	if err != nil || len(got.GetChecks()) != 1 || got.GetChecks()[0].GetName() != "engine" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestAnAgentIsExplainedByIDOrName(t *testing.T) {
	f := newAgents(t, func(d *server.Deps) {
		d.ExplainAgent = func(_ context.Context, id string) (*agboxv1.ExplainResponse, error) {
			return &agboxv1.ExplainResponse{Desired: "run", AgentState: "IDLE", Waiting: id}, nil
		}
	})
	_, err := f.createAgent("agent-1", "ada")
	f.must(err)
	for _, ref := range []string{"agent-1", "ada"} {
		got, err := f.admin.Explain(t.Context(), &agboxv1.ExplainRequest{AgentId: ref})
		if err != nil || got.GetWaiting() != "agent-1" || got.GetAgentState() != "IDLE" {
			t.Errorf("%s: explained %v, %v", ref, got, err)
		}
	}
	if _, err := f.admin.Explain(t.Context(), &agboxv1.ExplainRequest{AgentId: "work"}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
}
