package controller_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/execjournal"
)

const cleanupTTL = 10 * time.Minute

func cleansUp(c *controller.Config) { c.Settings.CleanupTTL = cleanupTTL }

// deletedWhileHidden is a sandbox whose running primary the engine hid until agboxd had judged it missing, and cleanup_ttl had deleted its
// record. The engine still hides the container.
func (p *player) deletedWhileHidden(t *testing.T) (id, primary string) {
	t.Helper()
	id = p.readyBox(t)
	primary = p.container(len(p.boxes) - 1)
	p.engine.HideContainer(primary, true)
	pass(3 * time.Minute) // a resync, then the second look
	p.wantState(t, id, failed)
	if sb := p.sandbox(t, id); sb.ErrorCode != "CONTAINER_MISSING" {
		t.Fatalf("%s failed with %s", id, sb.ErrorCode)
	}
	p.must(t, act{"remove network", len(p.boxes) - 1}) // the hidden container would keep it in use
	pass(2 * cleanupTTL)
	p.wantState(t, id, deleted)
	return id, primary
}

func (p *player) wantRunning(t *testing.T, primary string) {
	t.Helper()
	runs := slices.ContainsFunc(p.engine.Containers(), func(c dockerx.ContainerDetail) bool { return c.ID == primary && c.Running })
	if !runs {
		t.Fatalf("container %s does not run any more", primary)
	}
}

// A verdict of absence was wrong, and cleanup_ttl deleted the record for it. When the engine shows the container again, no pass and no
// collection of garbage removes it; both report it.
func TestARunningContainerOutlivesItsWronglyDeletedRecord(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id, primary := p.deletedWhileHidden(t)
		p.engine.HideContainer(primary, false)
		p.engine.PauseOutside(primary, true) // their events enqueue the sandbox
		p.engine.PauseOutside(primary, false)
		pass(10 * time.Minute)
		p.wantRunning(t, primary)
		if why := p.explain(t, id).GetWaiting(); !strings.Contains(why, "cleanup_ttl") {
			t.Errorf("explain says %q", why)
		}
		if err := p.restart(-1); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Minute)
		p.wantRunning(t, primary)
		found := "container agbox-primary-" + id
		p.wantGarbage(t, sweep, found+" (unknown)")
		p.wantRunning(t, primary)
		p.wantGarbage(t, sweepAll, found+" removed (unknown)")
	}, cleansUp)
}

// The same for its directories: a container that the engine does not show now may have them mounted.
func TestTheDirectoriesOfAWronglyDeletedRecordStay(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id, primary := p.deletedWhileHidden(t)
		p.files(t, id)
		dirs := []string{"directory " + id, "directory " + execjournal.RunName(id)}
		p.wantGarbage(t, sweep, dirs[0]+" (unknown)", dirs[1]+" (unknown)")
		p.wantGarbage(t, sweep, dirs[0]+" (unknown)", dirs[1]+" (unknown)")
		p.wantRunning(t, primary)
		p.wantGarbage(t, sweepAll, dirs[0]+" removed (unknown)", dirs[1]+" removed (unknown)")
	}, cleansUp)
}

// The engine shows the container again while the delete requested by cleanup_ttl is under way.
func TestADeleteForAWrongVerdictRemovesNothingThatRuns(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		primary := p.container(0)
		p.engine.HideContainer(primary, true)
		pass(3 * time.Minute) // a resync, then the second look
		p.wantState(t, id, failed)
		p.engine.Fail(dockerx.OpRemoveNetwork, 1000, nil, false)
		pass(2 * cleanupTTL)
		p.wantState(t, id, agboxv1.SandboxState_SANDBOX_STATE_DELETING)
		p.engine.HideContainer(primary, false)
		p.engine.Heal()
		pass(10 * time.Minute)
		p.wantRunning(t, primary)
		p.wantState(t, id, deleted)
		p.wantGarbage(t, sweep, "container agbox-primary-"+id+" (unknown)", "network agbox-net-"+id+" (unknown)",
			"directory "+id+" (unknown)", "directory "+execjournal.RunName(id)+" (unknown)")
		p.wantRunning(t, primary)
	}, cleansUp)
}
