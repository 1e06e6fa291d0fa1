package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/naming"
)

var (
	look      = &agboxv1.CollectGarbageRequest{DryRun: true}
	lookAtAll = &agboxv1.CollectGarbageRequest{DryRun: true, Unknown: true}
	sweep     = &agboxv1.CollectGarbageRequest{}
	sweepAll  = &agboxv1.CollectGarbageRequest{Unknown: true}
)

func keepOrphans(c *controller.Config) { c.Settings.KeepOrphans = true }

// collect returns one line for each item, without the test's part of a path.
func (p *player) collect(t *testing.T, req *agboxv1.CollectGarbageRequest) []string {
	t.Helper()
	items, err := p.daemon.CollectGarbage(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, g := range items {
		line := g.GetKind() + " " + g.GetName()
		switch {
		case g.GetError() != "":
			line += ": " + g.GetError()
		case g.GetRemoved():
			line += " removed"
		}
		if g.GetUnknown() {
			line += " (unknown)"
		}
		if g.GetReason() == "" || g.GetId() == "" {
			t.Errorf("something is missing: %v", g)
		}
		lines = append(lines, line)
	}
	return lines
}

func (p *player) wantGarbage(t *testing.T, req *agboxv1.CollectGarbageRequest, want ...string) {
	t.Helper()
	if got := p.collect(t, req); !slices.Equal(got, want) {
		t.Errorf("got:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// gone creates a sandbox and deletes it.
func (p *player) gone(t *testing.T) string {
	t.Helper()
	id := p.readyBox(t)
	if _, err := p.store.RequestDelete(t.Context(), id, "delete_requested"); err != nil {
		t.Fatal(err)
	}
	pass(time.Minute)
	p.wantState(t, id, deleted)
	return id
}

// files creates the directories of a sandbox, with content.
func (p *player) files(t *testing.T, id string) {
	t.Helper()
	paths, err := execjournal.New(filepath.Join(p.dir, "logs"), filepath.Join(p.dir, "s")).Prepare(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(paths.Logs, "x.stdout.log"), []byte("hi"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestGCRemovesLeftoversOfDeletedSandboxes(t *testing.T) {
	var log auditLog
	withDaemon(t, func(t *testing.T, p *player) {
		id, live := p.gone(t), p.readyBox(t)
		leftover(t, p, id)
		p.files(t, id)
		pass(10 * time.Minute) // the sweep is a dry run
		found := []string{"container left-box-0", "network net-box-0", "directory box-0", "directory " + execjournal.RunName(id)}
		p.wantGarbage(t, look, found...)
		p.wantGarbage(t, lookAtAll, found...)
		for i := range found {
			found[i] += " removed"
		}
		p.wantGarbage(t, sweep, found...)
		p.wantGarbage(t, sweep)
		p.wantState(t, live, ready)
		wantQuiet(t, p.explain(t, live))
		if n := len(p.engine.Containers()) + len(p.engine.Networks()); n != 2 {
			t.Errorf("%d objects are left", n)
		}
		var orphans []string
		for _, line := range log.lines(t) {
			if line.Reason == "orphan" && *line.SandboxID == id {
				orphans = append(orphans, line.Step)
			}
		}
		if want := []string{"remove-container", "remove-network", "remove-files", "remove-files"}; !slices.Equal(orphans, want) {
			t.Errorf("audited as %v", orphans)
		}
	}, keepOrphans, func(c *controller.Config) { c.Logger = slog.New(slog.NewJSONHandler(&log, nil)) })
}

func TestGCRemovesUnknownObjectsOnlyOnRequest(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		leftover(t, p, "stranger")
		p.files(t, "stranger")
		p.files(t, "elsewhere")
		if err := os.Remove(filepath.Join(p.dir, "logs", "elsewhere", "x.stdout.log")); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(p.dir, "logs", "elsewhere")); err != nil {
			t.Fatal(err)
		}
		found := []string{"container left-stranger", "network net-stranger", "directory stranger"}
		runs := []string{"directory " + execjournal.RunName("stranger"), "directory " + execjournal.RunName("elsewhere")}
		slices.Sort(runs)
		unknown := slices.Concat(found, runs)
		for i := range unknown {
			unknown[i] += " (unknown)"
		}
		p.wantGarbage(t, look, unknown...)
		p.wantGarbage(t, sweep, unknown...)
		for i := range unknown {
			unknown[i] = strings.Replace(unknown[i], " (", " removed (", 1)
		}
		p.wantGarbage(t, sweepAll, unknown...)
		p.wantGarbage(t, lookAtAll)
	})
}

func TestGCSkipsObjectsOfLiveSandboxes(t *testing.T) {
	broken := &damaged{}
	withDaemon(t, func(t *testing.T, p *player) {
		p.readyBox(t)
		broken.id = p.readyBox(t)
		p.must(t, act{"create", 0}, act{"stop", 0})
		p.engine.Fail(dockerx.OpCreateContainer, 1000, nil, false)
		for _, id := range []string{"box-3", "box-4"} { // one is being created, the other's directories do not exist yet
			p.must(t, act{"create", 0})
			p.files(t, id)
			p.wantGarbage(t, sweepAll)
		}
		pass(time.Second)
		p.wantGarbage(t, sweepAll)
		p.engine.Heal()
		pass(time.Minute)
		p.wantGarbage(t, sweepAll)
		p.wantState(t, "box-4", ready)
		p.wantState(t, "box-0", agboxv1.SandboxState_SANDBOX_STATE_STOPPED)
	}, func(c *controller.Config) { broken.Store, c.Store = c.Store, broken })
}

// lateExecs runs before just before the directories are listed.
type lateExecs struct {
	controller.Execs
	before func()
}

func (e *lateExecs) Dirs() ([]execjournal.SandboxDir, error) {
	if e.before != nil {
		e.before()
	}
	return e.Execs.Dirs()
}

func TestGCSkipsASandboxAcceptedMeanwhile(t *testing.T) {
	e := &lateExecs{}
	withDaemon(t, func(t *testing.T, p *player) {
		e.before = func() {
			e.before = nil
			p.must(t, act{"create", 0})
			p.files(t, "box-0")
		}
		p.wantGarbage(t, sweepAll)
		pass(time.Second)
		p.wantState(t, "box-0", ready)
	}, func(c *controller.Config) { e.Execs, c.Execs = c.Execs, e })
}

// A listed item may belong to a sandbox by the time it is removed.
func TestGarbageIsInspectedAgainRightBeforeItsRemoval(t *testing.T) {
	e := &lateLists{}
	withDaemon(t, func(t *testing.T, p *player) {
		leftover(t, p, "box-0")
		p.files(t, "box-0")
		pass(time.Second)
		e.before = func() { p.must(t, act{"create", 0}) }
		got := strings.Join(p.collect(t, sweepAll), "\n")
		for _, kept := range []string{"container left-box-0: ", "network net-box-0: ", "directory box-0: ", "directory " + execjournal.RunName("box-0") + ": "} {
			if !strings.Contains(got, kept) {
				t.Errorf("no %q in\n%s", kept, got)
			}
		}
		pass(time.Minute)
		p.wantState(t, "box-0", ready)
	}, func(c *controller.Config) { e.Engine, c.Engine = c.Engine, e })
}

// lateLists runs before at the first list for one sandbox after the directories were judged.
type lateLists struct {
	controller.Engine
	mu     sync.Mutex
	before func()
	judged bool
}

func (e *lateLists) ListContainers(ctx context.Context, labels map[string]string) ([]dockerx.Container, error) {
	e.mu.Lock()
	id, asked := labels[naming.SandboxID]
	e.judged = e.judged || asked && id == ""
	happens := e.before
	if id == "" || !e.judged {
		happens = nil
	}
	if happens != nil {
		e.before = nil
	}
	e.mu.Unlock()
	if happens != nil {
		happens()
	}
	return e.Engine.ListContainers(ctx, labels)
}

func TestGCNeverListsObjectsOfOtherDaemons(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		labels := map[string]string{naming.Instance: "somebody-else", naming.SandboxID: "theirs"}
		if _, err := p.engine.CreateOutside(dockerx.ContainerSpec{Name: "theirs", Image: image, Labels: labels}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.engine.CreateNetwork(t.Context(), dockerx.NetworkSpec{Name: "theirs", Labels: labels}); err != nil {
			t.Fatal(err)
		}
		p.files(t, "theirs") // another daemon has its logs there too
		p.wantGarbage(t, sweepAll)
	})
}

func TestADirectoryStaysWhileAContainerMayUseIt(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.gone(t)
		leftover(t, p, id)
		p.files(t, id)
		p.engine.Fail(dockerx.OpRemoveContainer, 1, nil, false)
		got := p.collect(t, sweep)
		if len(got) != 4 || !strings.HasPrefix(got[0], "container left-box-0: ") || got[2] != "directory box-0: container left-box-0 of its sandbox is still there" {
			t.Errorf("got %q", got)
		}
		p.engine.Heal()
		for _, line := range p.collect(t, sweep) {
			if !strings.HasSuffix(line, " removed") {
				t.Error(line)
			}
		}
		p.wantGarbage(t, look)
	}, keepOrphans)
}

func TestGCListsContainersOutsideTheSpec(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		p.engine.Fail(dockerx.OpRemoveContainer, 1000, nil, false)
		p.must(t, act{"double primary", 0})
		pass(time.Minute)
		p.wantGarbage(t, look, "container agbox-primary-box-0-double")
		p.engine.Heal()
		p.wantGarbage(t, sweep, "container agbox-primary-box-0-double removed")
		p.wantState(t, id, ready)
	})
}

// rebuilding is a store whose records are being rebuilt.
type rebuilding struct{ controller.Store }

func (rebuilding) RebuildPending() bool { return true }

func TestNothingIsJudgedWithoutTheEngineOrTheRecords(t *testing.T) {
	unavailable := func(t *testing.T, p *player, why string) {
		t.Helper()
		items, err := p.daemon.CollectGarbage(t.Context(), sweepAll)
		if !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), why) || len(items) > 0 {
			t.Errorf("got %v, %v", items, err)
		}
		if _, err := os.Stat(filepath.Join(p.dir, "logs", "stranger")); err != nil {
			t.Error(err)
		}
	}
	withDaemon(t, func(t *testing.T, p *player) {
		p.readyBox(t)
		p.files(t, "stranger")
		p.engine.RemoveContainerOutside(p.container(0))
		pass(time.Second)
		for _, n := range p.engine.Networks() {
			p.engine.RemoveNetworkOutside(n.ID)
		}
		p.engine.RemoveVolumeOutside(naming.MarkerVolume(p.store.InstanceID()))
		unavailable(t, p, "another Docker engine") // the link has not noticed
		p.engine.Replace()
		pass(time.Minute)
		unavailable(t, p, "another Docker engine")
		p.engine.Down(true)
		pass(time.Minute)
		unavailable(t, p, "can't be reached")
	})
	withDaemon(t, func(t *testing.T, p *player) {
		p.files(t, "stranger")
		unavailable(t, p, "being rebuilt")
	}, func(c *controller.Config) { c.Store = rebuilding{c.Store} })
}

func TestALotOfGarbageIsCollectedInSeveralCalls(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		const n = 30
		for i := range n {
			leftover(t, p, fmt.Sprintf("stranger-%d", i))
		}
		p.engine.Delay(dockerx.OpRemoveContainer, time.Second)
		begun := time.Now()
		got := p.collect(t, sweepAll)
		if took := time.Since(begun); took > 25*time.Second || len(got) != 2*n || !strings.Contains(got[2*n-1], "call again") {
			t.Errorf("after %s: %s", took, got)
		}
		p.collect(t, sweepAll)
		p.collect(t, sweepAll)
		p.wantGarbage(t, lookAtAll)
	})
}
