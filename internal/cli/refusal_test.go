package cli

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

func TestRefusalsSayWhatToDoNext(t *testing.T) {
	refused := &client.Error{Code: codes.FailedPrecondition, Reason: "SANDBOX_INVALID_STATE", Message: "as the daemon says it"}
	for want, sb := range map[string]*agboxv1.SandboxHandle{
		`cannot pause sandbox web: it is PAUSED; "agbox resume web" thaws it`: {State: agboxv1.SandboxState_SANDBOX_STATE_PAUSED},
		`cannot pause sandbox web: it is PAUSED; "agbox resume web" starts it`: {
			State: agboxv1.SandboxState_SANDBOX_STATE_PAUSED, DemotedAt: timestamppb.Now(),
		},
		`cannot pause sandbox web: it is PAUSED and being stopped; "agbox resume web" starts it when it is STOPPED`: {
			State: agboxv1.SandboxState_SANDBOX_STATE_PAUSED, DesiredState: "stopped",
		},
		`cannot pause sandbox web: it is READY and being paused; "agbox resume web" cancels that`: {
			State: agboxv1.SandboxState_SANDBOX_STATE_READY, DesiredState: "paused",
		},
		`cannot pause sandbox web: it is DELETING and being deleted`: {
			State: agboxv1.SandboxState_SANDBOX_STATE_DELETING, DesiredState: "deleted",
		},
		`cannot pause sandbox web: it is READY now; try again`:                                                    {State: agboxv1.SandboxState_SANDBOX_STATE_READY},
		`cannot pause sandbox web: it is PENDING; try again when it is READY`:                                     {State: agboxv1.SandboxState_SANDBOX_STATE_PENDING},
		`cannot pause sandbox web: it is STOPPED; "agbox resume web" starts it`:                                   {State: agboxv1.SandboxState_SANDBOX_STATE_STOPPED},
		`cannot pause sandbox web: it is FAILED; "agbox describe web" shows why and what "agbox resume" would do`: {State: agboxv1.SandboxState_SANDBOX_STATE_FAILED},
		`cannot pause sandbox web: it is DELETED`:                                                                 {State: agboxv1.SandboxState_SANDBOX_STATE_DELETED},
	} {
		sb.Name = "web"
		if got := withState("pause", sb, refused); got.Error() != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	refused.Metadata = map[string]string{"refusal": "the container of db is missing; delete it"}
	sb := &agboxv1.SandboxHandle{Name: "web", State: agboxv1.SandboxState_SANDBOX_STATE_FAILED}
	if got := withState("resume", sb, refused).Error(); got != "cannot resume sandbox web: it is FAILED: the container of db is missing; delete it" {
		t.Errorf("got %q", got)
	}
	other := &client.Error{Code: codes.NotFound, Message: "sandbox web was not found"}
	if got := (&app{}).sandboxRefused(t.Context(), "pause", &agboxv1.SandboxHandle{}, other); !errors.Is(got, other) {
		t.Errorf("got %v", got)
	}
}

// What the engine can't do does not depend on the state of the sandbox: the daemon's words stay.
func TestARefusedFreezeIsShownAsTheDaemonSaysIt(t *testing.T) {
	err := &client.Error{Code: codes.FailedPrecondition, Reason: "ENGINE_CANNOT_FREEZE", Message: "sandbox abcd can't be frozen"}
	if got := (&app{}).sandboxRefused(t.Context(), "pause", &agboxv1.SandboxHandle{}, err); !errors.Is(got, err) {
		t.Errorf("%v", got)
	}
}
