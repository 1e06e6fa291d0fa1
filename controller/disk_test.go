package controller_test

import (
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/disklimit"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
)

// limitedBox creates a sandbox with a disk limit of 64 MiB, which runs.
func (p *player) limitedBox(t *testing.T) (id, primary string) {
	t.Helper()
	const box = "box-a"
	if _, err := p.store.CreateSandbox(t.Context(), box, "", &agboxv1.CreateSpec{Image: image, DiskLimit: "64MiB"}, nil); err != nil {
		t.Fatal(err)
	}
	pass(5 * time.Second)
	p.wantState(t, box, ready)
	return box, naming.Primary(box)
}

// A limit that the engine does not hold is watched: over it, the sandbox is stopped with all its files, whatever dies meanwhile.
func TestASandboxOverItsDiskLimitIsStopped(t *testing.T) {
	const long = disklimit.Every + 20*time.Second // two measurements, and the stop
	withDaemon(t, func(t *testing.T, p *player) {
		box, primary := p.limitedBox(t)
		if spec, ok := p.engine.Spec(primary); !ok || spec.DiskBytes != 0 {
			t.Errorf("the engine got a limit of %d bytes", spec.DiskBytes)
		}
		pass(time.Minute)
		p.wantState(t, box, ready)
		before := p.engine.Calls(dockerx.OpMeasureContainer)
		if before < 3 {
			t.Errorf("it was measured %d times", before)
		}

		p.engine.Fill(primary, 100<<20)
		p.engine.Fail(dockerx.OpMeasureContainer, 5, nil, false)
		p.restarted(t, disklimit.Every-time.Second)
		p.engine.Down(true)
		pass(time.Minute)
		p.wantState(t, box, ready)
		p.engine.Down(false)
		pass(5*long + time.Minute)
		p.wantState(t, box, agboxv1.SandboxState_SANDBOX_STATE_STOPPED)
		events, err := p.store.NewestEvents(t.Context(), box, 10)
		if err != nil {
			t.Fatal(err)
		}
		var requested, stopped *agboxv1.SandboxPhaseDetails
		for _, e := range events {
			switch e.GetEventType() {
			case agboxv1.EventType_SANDBOX_STOP_REQUESTED:
				requested = e.GetSandboxPhase()
			case agboxv1.EventType_SANDBOX_STOPPED:
				stopped = e.GetSandboxPhase()
			}
		}
		if requested.GetErrorMessage() != "it has written 100MiB, and its disk_limit is 64MiB" || stopped.GetReason() != "disk_limit" {
			t.Errorf("stop requested: %v; stopped: %v", requested, stopped)
		}
		if got := p.daemon.DiskWarnings(p.sandbox(t, box)); len(got) != 2 {
			t.Errorf("%q", got)
		}

		resume := func() {
			t.Helper()
			if _, err := p.store.RequestResume(t.Context(), box); err != nil {
				t.Fatal(err)
			}
			pass(disklimit.Every / 2)
			p.wantState(t, box, ready)
		}
		resume() // and nothing is removed
		pass(long)
		p.wantState(t, box, agboxv1.SandboxState_SANDBOX_STATE_STOPPED)
		resume()
		p.engine.Fill(primary, 0)
		pass(10 * time.Minute)
		p.wantState(t, box, ready)
	})
}

func TestADiskLimitThatTheEngineHoldsIsNotWatched(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		p.engine.SetInfo(func(i *dockerx.Info) { i.DiskLimit = true })
		p.restarted(t, time.Second)
		box, primary := p.limitedBox(t)
		if spec, _ := p.engine.Spec(primary); spec.DiskBytes != 64<<20 {
			t.Errorf("the engine got a limit of %d bytes", spec.DiskBytes)
		}
		p.engine.Fill(primary, 100<<20)
		pass(10 * time.Minute)
		p.wantState(t, box, ready)
		if n := p.engine.Calls(dockerx.OpMeasureContainer); n != 0 || p.daemon.DiskWarnings(p.sandbox(t, box)) != nil {
			t.Errorf("it was measured %d times", n)
		}
	})
}
