package cli

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// What the engine can't do does not depend on the state of the sandbox: the daemon's words stay.
func TestARefusedFreezeIsShownAsTheDaemonSaysIt(t *testing.T) {
	err := &client.Error{Code: codes.FailedPrecondition, Reason: "ENGINE_CANNOT_FREEZE", Message: "sandbox abcd can't be frozen"}
	if got := (&app{}).sandboxRefused(t.Context(), "pause", &agboxv1.SandboxHandle{}, err); !errors.Is(got, err) {
		t.Errorf("%v", got)
	}
}
