package controller_test

import (
	"context"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/host/naming"
)

// A create whose primary the engine denies after the first hook continues when the engine shows it: with its services, which were stopped
// meanwhile, and with the hooks that are left. A resume would skip those.
func TestACreateContinuesWhenItsPrimaryReappears(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.create(t, &agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{checked(p, "db", "sleep 1000 0", "sleep 30000 0")}})
		for range 1000 {
			if sb, err := p.store.Sandbox(context.Background(), id); err != nil || sb.Progress.GetHooksDone() > 0 {
				break
			}
			pass(10 * time.Millisecond)
		}
		primary := p.named(naming.Primary(id))
		p.engine.HideContainer(primary, true)
		pass(time.Minute)
		p.wantState(t, id, failed)
		if _, err := p.store.RequestRecover(context.Background(), id); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("recover: %v", err)
		}
		p.engine.HideContainer(primary, false)
		pass(5 * time.Minute)
		p.wantState(t, id, ready)
		p.wantTypes(t, id, "ACCEPTED PREPARING SERVICE_READY FAILED RECOVERED READY")
		p.shim.mu.Lock()
		defer p.shim.mu.Unlock()
		if one, two := p.shim.ran[id+execid.ForHook(0)], p.shim.ran[id+execid.ForHook(1)]; one != 1 || two != 1 {
			t.Errorf("the hooks ran %d and %d times", one, two)
		}
	})
}
