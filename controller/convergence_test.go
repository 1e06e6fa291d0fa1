package controller_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/store"
)

// act is one event. n determines the sandbox and the variant.
type act struct {
	what string
	n    int
}

var happenings = []string{
	"create", "create", "stop", "resume", "delete", "exec", "exec", "exec", "cancel",
	"wait", "wait", "wait", "kill daemon", "kill daemon", "kill daemon soon", "kill daemon soon", "reboot",
	"engine down", "engine up", "engine restart", "engine restart live",
	"lose reply", "fail", "refuse", "late", "slow", "heal",
	"empty lists", "hide box", "swap storage", "truth", "rename box", "disconnect box", "docker stop", "recover",
	"hide boxes", "oom box", "kill box", "remove box", "start box", "remove network", "double primary",
	"kill service", "remove service", "sick service", "update", "update",
	"pause", "pause", "pause", "wake", "wake", "wake", "timeout", "demote", "thaw outside", "freeze outside", "clock", "stop at once",
	"policy", "flush rules", "flush rules unseen", "rules fail",
}

// pauses let a create be at any of its steps when the next event happens. rapid draws small numbers more often.
var pauses = []time.Duration{
	4 * time.Second, 100 * time.Millisecond, 8 * time.Second, time.Second, 2 * time.Second, 13 * time.Second, time.Millisecond,
	6 * time.Second, 30 * time.Second, 3 * time.Second, 2 * time.Minute, 10 * time.Second,
}

// clockSteps are steps of the wall clock. Each exceeds what NTP corrects.
var clockSteps = []time.Duration{
	10 * time.Second, -10 * time.Second, 2 * time.Minute, -2 * time.Minute, 4 * time.Minute, -4 * time.Minute, 2 * time.Hour, -2 * time.Hour,
	48 * time.Hour, -48 * time.Hour,
}

// TestConverges applies random events at random moments, then none, and checks that the world is as wanted.
func TestConverges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		happens := rapid.Custom(func(rt *rapid.T) act {
			return act{rapid.SampledFrom(happenings).Draw(rt, "what"), rapid.IntRange(0, 59).Draw(rt, "n")}
		})
		v := variant{
			idle: rapid.IntRange(0, 3).Draw(rt, "idle") == 0, pulls: rapid.IntRange(0, 3).Draw(rt, "pulls") == 0,
			failing: rapid.IntRange(0, 5).Draw(rt, "failing") == 0, crowded: rapid.IntRange(0, 2).Draw(rt, "crowded") == 0,
			cleanup: rapid.IntRange(0, 2).Draw(rt, "cleanup") == 0, graced: rapid.IntRange(0, 2).Draw(rt, "graced") == 0,
		}
		script := append([]act{{"create", 0}}, rapid.SliceOfN(happens, 5, 60).Draw(rt, "script")...)
		if err := play(t, v, script); err != nil {
			rt.Fatal(err)
		}
	})
}

// variant is the configuration of a run.
type variant struct {
	idle    bool // sandboxes without execs are stopped soon
	pulls   bool // the image must be pulled, which takes time
	failing bool // by policy, the death of a daemon or engine fails what it interrupted
	crowded bool // few sandboxes may be frozen, and not for long
	cleanup bool // stopped and failed sandboxes are deleted soon
	graced  bool // deadlines wait after a jump of the clock
}

// Deadlines of the variants. The grace is short enough for clockGraces of it to pass while a world settles.
const (
	soonCleanedUp = 3 * time.Minute
	shortGrace    = 2 * time.Minute
)

func (v variant) apply(p *player) {
	if w := p.witnessed(); v.graced {
		w.clock.grace = shortGrace
	}
	if v.pulls {
		p.engine.RemoveImageOutside(image)
		p.engine.AddRemoteImage(image, dockerx.Image{})
		p.engine.PullDelay = 2 * time.Second
	}
	p.excuse(v.failing)
	p.cfg = func(c *controller.Config) {
		c.Settings.FailInterruptedCreate, c.Settings.FailOnEngineDeath = v.failing, v.failing
		if v.idle {
			c.Settings.IdleTTL = 10 * time.Second
		}
		if v.cleanup {
			c.Settings.CleanupTTL = soonCleanedUp
		}
		if v.graced {
			c.Settings.ClockGrace = shortGrace
		}
		if v.crowded {
			c.Settings.MaxFrozen, c.Settings.FreezeDuration = 1, 90*time.Second
		}
	}
}

// play runs a script in a synctest bubble.
func play(t *testing.T, v variant, script []act) (err error) {
	t.Helper()
	base := "/dev/shm"
	if _, statErr := os.Stat(base); statErr != nil {
		base = ""
	}
	dir, err := os.MkdirTemp(base, "agbox-converge-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	synctest.Test(t, func(*testing.T) {
		p := newPlayer(dir)
		defer func() {
			if closeErr := p.close(); err == nil {
				err = closeErr
			}
		}()
		p.engine.HealthBehavior = func(dockerx.ContainerSpec) (dockerx.Health, time.Duration) {
			return dockerx.HealthHealthy, 3 * time.Second
		}
		if err = os.MkdirAll(dir+"/src", 0o755); err == nil {
			err = os.WriteFile(dir+"/src/file", []byte("copied"), 0o600)
		}
		if err != nil {
			return
		}
		v.apply(p)
		p.watch.pass = slowPassTime
		if err = p.start(-1); err != nil {
			return
		}
		for i, a := range script {
			if err = errors.Join(p.do(a), p.watch.violated()); err != nil {
				err = fmt.Errorf("act %d, %v: %w", i, a, err)
				return
			}
		}
		err = p.quiet()
	})
	return err
}

type player struct {
	*world
	*excuses
	boxes, execs []string
	swapped      bool // the engine keeps new containers with another storage driver
}

func newPlayer(dir string) *player {
	return &player{world: newWorld(dir), excuses: &excuses{harmed: map[string]bool{}, oom: map[string]bool{}, halted: map[string]bool{}}}
}

// excuses are the sandboxes that may be FAILED, because a fault from outside broke them.
type excuses struct {
	mu     sync.Mutex
	harmed map[string]bool
	oom    map[string]bool // by the OOM killer
	halted map[string]bool // their primaries were stopped from outside amid the create
	all    bool            // any sandbox may be FAILED
}

// halts records that the primary of a sandbox is stopped from outside amid its create.
func (e *excuses) halts(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.halted[id] = true
}

// mayFailForHalt reports whether a create may fail because its primary was stopped from outside.
func (e *excuses) mayFailForHalt(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.halted[id]
}

// killsForMemory records that the OOM killer ended a sandbox.
func (e *excuses) killsForMemory(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.harmed[id], e.oom[id] = true, true
}

// mayFailForMemory reports whether the OOM killer ended a sandbox, or any sandbox may be FAILED.
func (e *excuses) mayFailForMemory(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.all || e.oom[id]
}

func (e *excuses) excuse(all bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = e.all || all
}

func (e *excuses) harmIf(id string, harmed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.harmed[id] = e.harmed[id] || harmed
}

func (e *excuses) isHarmed(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.harmed[id]
}

// mayFail reports whether a sandbox may be FAILED.
func (e *excuses) mayFail(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.all || e.harmed[id]
}

func (p *player) box(n int) string {
	if len(p.boxes) == 0 {
		return "none"
	}
	return p.boxes[n%len(p.boxes)]
}

func (p *player) container(n int) string {
	id := naming.Primary(p.box(n))
	for _, c := range p.engine.Containers() {
		if c.Name == id {
			return c.ID
		}
	}
	return "none"
}

// do performs one act. A refusal by the store is as good as an accept.
func (p *player) do(a act) error {
	ctx := context.Background()
	ops := []string{
		dockerx.OpListContainers, dockerx.OpCreateContainer, dockerx.OpStartContainer, dockerx.OpRemoveContainer,
		dockerx.OpListNetworks, dockerx.OpCreateNetwork, dockerx.OpRemoveNetwork, dockerx.OpInspectImage, dockerx.OpInfo,
	}
	op := ops[a.n%len(ops)]
	anyOp := append(ops, dockerx.OpStopContainer, dockerx.OpInspectContainer, dockerx.OpPullImage, dockerx.OpEvents,
		dockerx.OpInspectVolume, dockerx.OpUpdateContainer)[a.n%(len(ops)+6)]
	switch a.what {
	case "create":
		id := fmt.Sprintf("box-%d", len(p.boxes))
		p.boxes = append(p.boxes, id)
		p.harmIf(id, p.swapped)
		if _, err := p.store.CreateSandbox(ctx, id, "", p.spec(a.n), nil); err != nil {
			return err
		}
	case "stop":
		_, _ = p.store.RequestStop(ctx, p.box(a.n), "stop_requested")
	case "resume":
		_, _ = p.store.RequestResume(ctx, p.box(a.n))
	case "delete":
		_, _ = p.store.RequestDelete(ctx, p.box(a.n), "delete_requested")
	case "exec":
		id := fmt.Sprintf("exec-%d", len(p.execs))
		command := []string{"sleep", fmt.Sprint(a.n * a.n), fmt.Sprint([]int{0, 1, 2, killedForMemory}[a.n%4])}
		if _, err := p.store.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: p.box(a.n), ExecId: id, Command: command}, store.Caller{}); err == nil {
			p.execs = append(p.execs, id)
		}
	case "cancel":
		if len(p.execs) > 0 {
			_, _ = p.store.RequestCancel(ctx, p.execs[a.n%len(p.execs)])
		}
	case "pause":
		_, _ = p.store.RequestPause(ctx, p.box(a.n), "pause_requested")
	case "wake": // regardless of what stopped it
		return p.do(act{"resume", a.n})
	case "stop at once": // two requests at the same moment, in either order
		verbs := []string{"pause", "resume", "stop", "demote", "delete", "pause"}
		return errors.Join(p.do(act{verbs[a.n%6], a.n}), p.do(act{verbs[a.n/6%6], a.n}))
	case "timeout":
		_, _, _ = p.store.SetTimeout(ctx, p.box(a.n), store.Timeout{After: time.Duration(a.n) * time.Second, OnlyExtend: a.n%7 == 0})
	case "demote":
		_, _ = p.store.Demote(ctx, p.box(a.n))
	case "freeze outside":
		p.engine.PauseOutside(p.container(a.n), true)
	case "thaw outside":
		p.engine.PauseOutside(p.container(a.n), false)
	case "clock":
		p.stepClock(clockSteps[a.n%len(clockSteps)])
	case "wait":
		time.Sleep(pauses[a.n%len(pauses)])
	case "kill daemon":
		return p.restart(-1)
	case "kill daemon soon":
		if err := p.restart(a.n); err != nil {
			return err
		}
	case "reboot":
		if err := p.kill(); err != nil {
			return err
		}
		p.boot++
		p.watch.boots()
		p.firewall.reboot()
		p.engine.RestartEngine(false)
		p.loseHooks()
		synctest.Wait() // no process outlives its host
		p.shim.powerLost()
		return p.start(-1)
	case "engine down":
		p.engine.Down(true)
	case "engine up":
		p.engine.Down(false)
	case "engine restart":
		p.engine.RestartEngine(false)
		p.loseHooks()
	case "engine restart live":
		p.engine.RestartEngine(true)
	case "lose reply":
		p.engine.Fail(anyOp, 1+a.n%3, nil, true)
	case "fail":
		p.engine.Fail(anyOp, 1+a.n%3, nil, false)
	case "refuse": // errors that may be permanent
		p.excuse(true)
		class := []error{errdefs.ErrInvalidArgument, errdefs.ErrInternal, errdefs.ErrNotFound}[a.n%3]
		refusable := []string{dockerx.OpStartContainer, dockerx.OpCreateContainer, dockerx.OpUpdateContainer, dockerx.OpPullImage}
		p.engine.Fail(refusable[a.n/3%4], 1+a.n, class, false)
	case "late":
		p.engine.Late(op, 1, time.Duration(a.n)*time.Second)
	case "slow":
		if anyOp == dockerx.OpUpdateContainer {
			return nil // an update that outlives its daemon may overtake the next one: the engine orders them, not agboxd
		}
		p.engine.Delay(anyOp, time.Duration(a.n)*100*time.Millisecond)
		// A stop that outlives its daemon may hit the next run: it cannot be distinguished from an end.
		p.excuse(anyOp == dockerx.OpStopContainer)
	case "heal":
		p.engine.Heal()
	case "kill box":
		p.harm(a.n)
		p.engine.ExitContainer(p.container(a.n), 1, false)
	case "oom box":
		p.killsForMemory(p.box(a.n))
		p.engine.ExitContainer(p.container(a.n), 137, true)
	case "empty lists": // of containers, of networks, or of both
		p.engine.EmptyLists([][]string{
			{dockerx.OpListContainers}, {dockerx.OpListNetworks}, {dockerx.OpListContainers, dockerx.OpListNetworks},
		}[a.n%3]...)
	case "hide box":
		p.engine.HideContainer(p.container(a.n), true)
	case "hide boxes": // together
		p.hidePrimaries(a.n%2 == 0)
	case "swap storage":
		if p.settled() { // otherwise the other driver may become the right one
			driver := []string{"vfs", "overlay2"}[a.n%2]
			p.engine.SwapStorage(driver)
			p.swapped = driver != p.storage()
			for _, id := range p.boxes { // one that is being created may be kept by the other driver
				if sb, err := p.store.Sandbox(ctx, id); err == nil && sb.Desired.GetObjects().GetPrimaryId() == "" {
					p.harmIf(id, true)
				}
			}
		}
	case "truth":
		p.truth()
	case "rename box":
		p.engine.RenameOutside(p.container(a.n), renamed+p.box(a.n))
	case "disconnect box":
		p.engine.DisconnectOutside(p.container(a.n))
	case "docker stop":
		if sb, err := p.store.Sandbox(ctx, p.box(a.n)); err == nil && sb.State == agboxv1.SandboxState_SANDBOX_STATE_PENDING {
			p.halts(sb.ID) // what runs in it, a hook too, runs once: the create cannot continue
		}
		_ = p.engine.StopOutside(p.container(a.n), 10*time.Second)
	case "recover":
		_, _ = p.store.RequestRecover(ctx, p.box(a.n))
	case "remove box":
		p.harm(a.n)
		p.engine.RemoveContainerOutside(p.container(a.n))
	case "start box":
		p.harm(a.n) // it is stopped again; an immediate resume keeps it as it is, and a stop whose caller died then ends it
		_ = p.engine.StartOutside(p.container(a.n))
	case "remove network":
		p.harm(a.n)
		for _, n := range p.engine.Networks() {
			if n.Labels[naming.SandboxID] == p.box(a.n) {
				p.engine.RemoveNetworkOutside(n.ID)
			}
		}
	case "kill service":
		p.harm(a.n)
		p.engine.ExitContainer(p.service(a.n), a.n%2, false)
	case "remove service":
		p.harm(a.n)
		p.engine.RemoveContainerOutside(p.service(a.n))
	case "sick service":
		p.harm(a.n)
		p.engine.SetHealth(p.service(a.n), dockerx.HealthUnhealthy)
	case "update":
		_, _, _ = p.store.UpdateSpec(ctx, p.box(a.n), 0, func(old *agboxv1.CreateSpec) (*agboxv1.CreateSpec, []string, bool, error) {
			next := proto.CloneOf(old)
			next.PidsLimit = uint32(100 + a.n)
			for _, svc := range next.GetRequiredServices() {
				svc.PidsLimit = uint32(200 + a.n)
			}
			return next, []string{"pids_limit"}, true, nil
		})
	case "policy":
		_, _, _ = p.store.UpdateSpec(ctx, p.box(a.n), 0, func(old *agboxv1.CreateSpec) (*agboxv1.CreateSpec, []string, bool, error) {
			next := proto.CloneOf(old)
			next.Network = changedNetwork(old.GetNetwork(), a.n)
			return next, []string{"network"}, false, nil
		})
	case "flush rules":
		p.firewall.flush(true)
	case "flush rules unseen":
		p.firewall.flush(false)
	case "rules fail":
		p.firewall.fail(1 + a.n%3)
	case "double primary":
		if spec, ok := p.engine.Spec(p.container(a.n)); ok {
			spec.Name += "-double"
			_, _ = p.engine.CreateOutside(spec)
		}
	}
	return nil
}

// stepClock steps the wall clock of the host.
func (p *player) stepClock(d time.Duration) {
	if p.watch != nil {
		p.watch.clock.step(d)
	}
	p.skew.Add(int64(d))
}

// settled reports whether a live sandbox shows which storage driver of the engine is the right one.
func (p *player) settled() bool {
	return slices.ContainsFunc(p.store.LiveIDs(), func(id string) bool {
		sb, err := p.store.Sandbox(context.Background(), id)
		return err == nil && sb.Desired.GetObjects().GetPrimaryId() != "" && sb.Desired.GetRunState() != storev1.RunState_RUN_STATE_DELETE
	})
}

// storage returns the recorded storage driver. It differs from the first one once that one held no sandbox any more.
func (p *player) storage() string {
	if id, err := p.store.EngineIdentity(context.Background()); err == nil && id.GetStorageDriver() != "" {
		return id.GetStorageDriver()
	}
	return "overlay2"
}

// truth ends every false answer of the engine.
func (p *player) truth() {
	p.engine.EmptyLists()
	p.engine.SwapStorage(p.storage())
	p.swapped = false
	for _, c := range p.engine.Containers() {
		p.engine.HideContainer(c.ID, false)
	}
	for _, c := range p.engine.Keeps() { // by the other driver, which does not return
		p.harmIf(c.Labels[naming.SandboxID], !c.Shown)
	}
}

// spec returns one of three kinds: a plain one, one with services, hooks and files, and one with a restart policy and a published port.
func (p *player) spec(n int) *agboxv1.CreateSpec {
	spec := &agboxv1.CreateSpec{Image: image, AutoResume: n%2 == 0, Network: networkOf(n)}
	if n%3 == 1 {
		spec.OnTimeout = "pause"
	}
	switch n % 5 {
	case 2, 4:
		check := func(apart int32) *agboxv1.HealthcheckConfig { // no two probes run at the same moment
			return &agboxv1.HealthcheckConfig{Test: []string{"CMD", "true"}, Interval: &durationpb.Duration{Seconds: 30, Nanos: apart}}
		}
		spec.RequiredServices = []*agboxv1.ServiceSpec{
			{Name: "db", Image: image, Healthcheck: check(0)},
			{Name: "mq", Image: image, Healthcheck: check(1), PostStartOnPrimary: []string{"sleep 5000 0", "sleep 2000 0"}},
		}
		spec.OptionalServices = []*agboxv1.ServiceSpec{{Name: "opt", Image: image, RestartPolicy: "on-failure"}}
		spec.Copies = []*agboxv1.CopySpec{{Source: p.dir + "/src", Target: "/data/src"}}
	case 3:
		spec.RestartPolicy, spec.Ports = "always", []*agboxv1.PortSpec{{ContainerPort: 80}}
	}
	return spec
}

// served reports whether a sandbox has services.
func (p *player) served(id string) bool {
	sb, err := p.store.Sandbox(context.Background(), id)
	return err == nil && len(sb.Spec.GetRequiredServices()) > 0
}

// service returns the ID of a container of a service.
func (p *player) service(n int) string {
	name := naming.Service(p.box(n), []string{"db", "mq", "opt"}[n/7%3])
	for _, c := range p.engine.Containers() {
		if c.Name == name {
			return c.ID
		}
	}
	return "none"
}

// loseHooks records the sandboxes whose create may fail now: a hook that died with the engine does not run again.
func (p *player) loseHooks() {
	synctest.Wait()
	p.shim.mu.Lock()
	defer p.shim.mu.Unlock()
	for _, id := range p.boxes {
		for hook := range 2 {
			key := id + execid.ForHook(hook)
			if _, ended := p.shim.ends[key]; p.shim.ran[key] > 0 && !ended {
				p.harmIf(id, true)
			}
		}
	}
}

// harm records that a fault from outside broke a sandbox: it may be FAILED.
func (p *player) harm(n int) { p.harmIf(p.box(n), true) }

// renamed is the prefix of the name of a container that was renamed from outside.
const renamed = "renamed-"

// settle is longer than every backoff, grace period, late operation and resync together.
const settle = 20 * time.Minute

func (p *player) quiet() error {
	p.engine.Heal()
	p.firewall.fail(0)
	p.engine.Down(false)
	p.truth()
	if err := p.restart(-1); err != nil {
		return err
	}
	pass(settle)
	if len(p.reallyGone()) > 1 && p.daemon.Vanished() != "" { // and the events of the removals were lost
		p.watch.confirms()
		if _, err := p.daemon.ConfirmEngine(context.Background()); err != nil {
			return err
		}
		pass(settle)
	}
	if err := errors.Join(p.checkRest(), p.checkAll()); err != nil {
		return err
	}
	for _, id := range p.boxes { // paused sandboxes must resume unchanged
		_, _ = p.store.RequestResume(context.Background(), id)
	}
	pass(settle)
	if err := p.checkAll(); err != nil {
		return fmt.Errorf("after a resume: %w", err)
	}
	return nil
}

func (p *player) checkAll() error {
	if err := errors.Join(p.watch.violated(), p.checkVanished(), p.checkNoRulesLeft()); err != nil {
		return err
	}
	for _, id := range p.boxes {
		if err := errors.Join(p.checkBox(id), p.checkExplained(id)); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	for _, id := range p.execs {
		if err := p.checkExec(id); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	return nil
}

// checkRest checks that a world in its desired state causes only resyncs and probes.
func (p *player) checkRest() error {
	before := p.calls()
	const minutes = 5
	pass(minutes * time.Minute)
	for op, n := range p.calls() {
		limit := 0
		switch op {
		case dockerx.OpListContainers, dockerx.OpListNetworks, dockerx.OpListImages:
			limit = minutes
		case dockerx.OpInfo:
			limit = minutes * 12
		}
		if n-before[op] > limit {
			return fmt.Errorf("%d calls of %s in %d quiet minutes", n-before[op], op, minutes)
		}
	}
	return nil
}

// isMissed reports whether a STOPPED sandbox waits for its primary, which is gone without an event. Only a resume needs it.
func (p *player) isMissed(sb store.Sandbox) bool {
	return sb.State == agboxv1.SandboxState_SANDBOX_STATE_STOPPED && strings.Contains(p.daemon.Status(sb.ID), "does not show the primary") &&
		slices.Contains(p.reallyGone(), sb.ID)
}

func (p *player) checkBox(id string) error {
	sb, err := p.store.Sandbox(context.Background(), id)
	if err != nil {
		return err
	}
	want := map[storev1.RunState]agboxv1.SandboxState{
		storev1.RunState_RUN_STATE_RUN:    agboxv1.SandboxState_SANDBOX_STATE_READY,
		storev1.RunState_RUN_STATE_STOP:   agboxv1.SandboxState_SANDBOX_STATE_STOPPED,
		storev1.RunState_RUN_STATE_PAUSE:  agboxv1.SandboxState_SANDBOX_STATE_PAUSED,
		storev1.RunState_RUN_STATE_DELETE: agboxv1.SandboxState_SANDBOX_STATE_DELETED,
	}[sb.Desired.GetRunState()]
	broken := sb.State == agboxv1.SandboxState_SANDBOX_STATE_FAILED
	excused := broken && p.mayFail(id) && want != agboxv1.SandboxState_SANDBOX_STATE_DELETED
	if sb.State != want && !excused {
		return fmt.Errorf("is %s (%s %s), want %s; %s; engine %q", sb.State, sb.ErrorCode, sb.ErrorMessage, want, p.daemon.Status(id), p.daemon.EngineProblem())
	}
	if want == agboxv1.SandboxState_SANDBOX_STATE_READY && p.runsElsewhere(id) {
		return nil // an exec runs in it, so it is neither failed nor judged
	}
	if p.isMissed(sb) {
		return nil
	}
	if line := p.daemon.Status(id); line != "" {
		return fmt.Errorf("is %s, and the status still says %q", sb.State, line)
	}
	if err := p.checkObjects(id, sb.State, sb.Desired.GetDemotedAt() != 0); err != nil {
		return err
	}
	if err := errors.Join(p.checkSettings(id, sb), p.checkRules(sb)); err != nil {
		return err
	}
	return p.checkHistory(id, sb.LastSequence)
}

// checkObjects compares Docker with the state: no object is missing, duplicated or left over.
func (p *player) checkObjects(id string, state agboxv1.SandboxState, demoted bool) error {
	var running, frozen, all, networks int
	for _, c := range p.engine.Containers() {
		if c.Labels[naming.SandboxID] == id {
			all++
			if c.Running && !c.Paused {
				running++
			}
			if c.Paused {
				frozen++
			}
		}
	}
	for _, n := range p.engine.Networks() {
		if n.Labels[naming.SandboxID] == id {
			networks++
		}
	}
	most := 1
	if p.served(id) {
		most = 4
	}
	atRest := state == agboxv1.SandboxState_SANDBOX_STATE_STOPPED || state == agboxv1.SandboxState_SANDBOX_STATE_PAUSED
	if p.isHarmed(id) && atRest && networks == 0 {
		networks = 1 // a sandbox at rest is not judged by its network: a resume reports that it is gone
	}
	count := func(running, frozen, all, networks int) string {
		return fmt.Sprintf("%d running and %d frozen of %d containers, %d networks", running, frozen, all, networks)
	}
	if state == agboxv1.SandboxState_SANDBOX_STATE_DELETED && p.isUnswept(id) {
		return nil // an object that the engine shows only now is left to an operator
	}
	got := count(running, frozen, all, networks)
	want := map[agboxv1.SandboxState]string{
		agboxv1.SandboxState_SANDBOX_STATE_READY:   count(most, 0, most, 1),
		agboxv1.SandboxState_SANDBOX_STATE_STOPPED: count(0, 0, most, 1),
		agboxv1.SandboxState_SANDBOX_STATE_PAUSED:  count(0, most, most, 1),
		agboxv1.SandboxState_SANDBOX_STATE_DELETED: count(0, 0, 0, 0),
	}[state]
	if state == agboxv1.SandboxState_SANDBOX_STATE_PAUSED && demoted {
		want = count(0, 0, most, 1)
	}
	if state == agboxv1.SandboxState_SANDBOX_STATE_FAILED && running+frozen == 0 && all <= most && networks <= 1 {
		return nil
	}
	if p.isHarmed(id) && most > 1 && all >= 1 && all <= most && networks == 1 { // a failed service stays down
		up := state == agboxv1.SandboxState_SANDBOX_STATE_READY && running >= 1 && frozen == 0
		asleep := state == agboxv1.SandboxState_SANDBOX_STATE_PAUSED && !demoted && running == 0 && frozen >= 1
		if up || asleep || atRest && running+frozen == 0 && (demoted || state == agboxv1.SandboxState_SANDBOX_STATE_STOPPED) {
			return nil
		}
	}
	if got != want {
		return fmt.Errorf("%s holds %s, want %s", state, got, want)
	}
	_, err := os.Stat(p.dir + "/logs/" + id)
	if state == agboxv1.SandboxState_SANDBOX_STATE_DELETED && err == nil {
		return fmt.Errorf("its logs are left")
	}
	return nil
}

// checkSettings: the containers have the limits of the spec and the copied files, and their ports are known.
func (p *player) checkSettings(id string, sb store.Sandbox) error {
	up := sb.State == agboxv1.SandboxState_SANDBOX_STATE_READY
	if !up && sb.State != agboxv1.SandboxState_SANDBOX_STATE_STOPPED {
		return nil
	}
	if up && len(sb.Spec.GetPorts()) != len(p.daemon.Ports(id)) {
		return fmt.Errorf("publishes %d ports, %d are known", len(sb.Spec.GetPorts()), len(p.daemon.Ports(id)))
	}
	if released, err := p.journals().Released(id); up && !released {
		return errors.Join(err, errors.New("its PID 1 waits for its release"))
	}
	want := map[string]int64{"": pids(sb.Spec.GetPidsLimit())} // by service
	for _, svc := range slices.Concat(sb.Spec.GetRequiredServices(), sb.Spec.GetOptionalServices()) {
		want[svc.GetName()] = pids(svc.GetPidsLimit())
	}
	for _, c := range p.engine.Containers() {
		if c.Labels[naming.SandboxID] == id && c.Limits.Pids != want[c.Labels[naming.ServiceName]] {
			return fmt.Errorf("%s has a pids limit of %d, want %d", c.Name, c.Limits.Pids, want[c.Labels[naming.ServiceName]])
		}
		if c.Labels[naming.SandboxID] == id && c.Labels[naming.Component] == naming.ComponentPrimary && len(sb.Spec.GetCopies()) > 0 {
			if data, ok := p.engine.File(c.ID, "/data/src/file"); !ok || string(data) != "copied" {
				return fmt.Errorf("its copy is %q", data)
			}
		}
	}
	for hook := range 2 {
		p.shim.mu.Lock()
		ran := p.shim.ran[id+execid.ForHook(hook)]
		p.shim.mu.Unlock()
		if ran > 1 || ran == 0 && p.served(id) {
			return fmt.Errorf("hook %d ran %d times", hook, ran)
		}
	}
	return nil
}

func pids(limit uint32) int64 {
	if limit == 0 {
		return 4096
	}
	return int64(limit)
}

// checkHistory reads the events: no gap, and one start and one end per exec.
func (p *player) checkHistory(id string, last uint64) error {
	var events []*agboxv1.SandboxEvent
	for uint64(len(events)) < last {
		batch, err := p.store.Events(context.Background(), id, uint64(len(events)), 256)
		if err != nil || len(batch) == 0 {
			return fmt.Errorf("%d events of %d: %w", len(events), last, err)
		}
		events = append(events, batch...)
	}
	seen, told := map[string][]string{}, map[string]agboxv1.EventType{}
	var begun map[agboxv1.EventType]bool // since the accept
	for i, e := range events {
		if e.GetEventType() == agboxv1.EventType_SANDBOX_ACCEPTED {
			clear(told)
			begun = map[agboxv1.EventType]bool{}
		}
		switch e.GetEventType() {
		case agboxv1.EventType_SANDBOX_PREPARING, agboxv1.EventType_SANDBOX_READY, agboxv1.EventType_SANDBOX_STOPPED,
			agboxv1.EventType_SANDBOX_DELETED, agboxv1.EventType_SANDBOX_STOP_REQUESTED, agboxv1.EventType_SANDBOX_PAUSE_REQUESTED:
			if begun[e.GetEventType()] {
				return fmt.Errorf("event %d says %s twice", i+1, e.GetEventType())
			}
			begun[e.GetEventType()] = true
		}
		if svc := e.GetService().GetServiceName(); svc != "" {
			if told[svc] == e.GetEventType() {
				return fmt.Errorf("event %d says %s of %s twice", i+1, e.GetEventType(), svc)
			}
			told[svc] = e.GetEventType()
		}
		if e.GetSequence() != uint64(i+1) {
			return fmt.Errorf("event %d has sequence %d", i+1, e.GetSequence())
		}
		if x := e.GetExec().GetExecId(); x != "" {
			seen[x] = append(seen[x], e.GetEventType().String())
		}
	}
	for x, list := range seen {
		if len(list) == 1 && list[0] == "EXEC_STARTED" && (p.asleep(id) || strings.HasPrefix(x, "agent-")) {
			continue
		}
		if len(list) != 2 || list[0] != "EXEC_STARTED" || slices.Contains(list[1:], "EXEC_STARTED") {
			return fmt.Errorf("%s has events %s", x, strings.Join(list, " "))
		}
	}
	return nil
}

// asleep reports whether a sandbox is frozen: its execs continue when it is thawed.
func (p *player) asleep(id string) bool {
	return slices.Contains(p.store.FrozenIDs(), id)
}

// checkExec: it ended; it ran at most once; and if it recorded a result, the store has that result.
func (p *player) checkExec(id string) error {
	ex, err := p.store.Exec(context.Background(), id)
	if err != nil {
		return err
	}
	p.shim.mu.Lock()
	defer p.shim.mu.Unlock()
	ran, end, recorded := p.shim.ran[id], p.shim.ends[id], false
	if _, ok := p.shim.ends[id]; ok {
		recorded = true
	}
	switch {
	case ex.End == nil && p.asleep(ex.SandboxID):
	case ex.End == nil:
		return fmt.Errorf("has no end")
	case ran > 1:
		return fmt.Errorf("ran %d times", ran)
	case recorded && int(ex.End.GetExitCode()) != end.ExitCode:
		return fmt.Errorf("ended with %d; on record is %v", end.ExitCode, ex.End)
	case recorded && ex.End.GetOomKilled() != end.OOM:
		return fmt.Errorf("was killed for memory: %t; on record is %v", end.OOM, ex.End)
	case !recorded && ex.End.GetState() == int32(agboxv1.ExecState_EXEC_STATE_FINISHED):
		return fmt.Errorf("is FINISHED and never ended")
	}
	return nil
}
