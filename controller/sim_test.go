package controller_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/store"
)

var (
	simSteps   = flag.Int("sim.steps", 20_000, "steps of TestSim, of all its episodes together")
	simSeed    = flag.Uint64("sim.seed", 1, "seed of TestSim's first episode")
	simReplays = flag.Int("sim.replays", 6, "seeds that TestSimReplays plays twice")
	simTrace   = flag.String("sim.trace", "", "file for the trace of the episode of TestSim that fails")
)

// episodeSteps is the number of steps of an episode before it comes to rest.
const episodeSteps = 1200

// TestSim plays episodes in simulated time, each with its own seed: the first with -sim.seed, each further one with the next number. An
// episode is a world with the real store, the real controller and a fake engine, in which one step at a time happens; see sched. A failure
// prints the seed with which -sim.seed plays the same steps again.
func TestSim(t *testing.T) {
	begun, steps, episodes := time.Now(), 0, 0
	for seed := *simSeed; steps < *simSteps; seed++ {
		e := playEpisode(t, seed)
		steps, episodes = steps+e.steps, episodes+1
		if e.err != nil && *simTrace != "" {
			if err := os.WriteFile(*simTrace, []byte(strings.Join(e.trace, "\n")+"\n"), 0o600); err != nil {
				t.Error(err)
			}
		}
		if e.err != nil {
			t.Fatalf("seed %d, step %d of this episode, %d of all: %v\nthe last steps:\n%s\nplay it again: make sim STEPS=1 SEED=%d",
				seed, e.steps, steps, e.err, strings.Join(e.last(), "\n"), seed)
		}
	}
	t.Logf("%d steps in %d episodes from seed %d, %.0f a second", steps, episodes, *simSeed, float64(steps)/time.Since(begun).Seconds())
}

// TestSimReplays plays seeds twice: the traces must be the same to the last step.
func TestSimReplays(t *testing.T) {
	for seed := *simSeed; seed < *simSeed+uint64(*simReplays); seed++ {
		a, b := playEpisode(t, seed), playEpisode(t, seed)
		if a.hash == b.hash && a.steps == b.steps {
			continue
		}
		for i := range min(len(a.trace), len(b.trace)) {
			if a.trace[i] != b.trace[i] {
				t.Errorf("seed %d: %d and %d steps; in one is\n%s\nin the other\n%s", seed, a.steps, b.steps,
					strings.Join(a.trace[max(i-10, 0):min(i+3, len(a.trace))], "\n"), strings.Join(b.trace[max(i-10, 0):min(i+3, len(b.trace))], "\n"))
				break
			}
		}
	}
}

// episode is the result of one episode.
type episode struct {
	err   error
	steps int
	hash  uint64
	trace []string
}

// last returns the last steps with faults.
func (e *episode) last() []string {
	end := slices.IndexFunc(e.trace, func(line string) bool { return strings.HasSuffix(line, calmNow) })
	if end < 0 {
		end = len(e.trace)
	}
	return e.trace[max(end-60, 0):end]
}

func playEpisode(t *testing.T, seed uint64) (e episode) {
	t.Helper()
	dir, err := os.MkdirTemp(fastDir(), "agbox-sim-")
	if err != nil {
		return episode{err: err}
	}
	defer os.RemoveAll(dir)
	synctest.Test(t, func(*testing.T) {
		s := newSim(dir, seed)
		e.err = s.play()
		if err := s.end(); e.err == nil && err != nil {
			e.err = err
		}
		e.steps, e.hash, e.trace = s.steps, s.hash.Sum64(), s.trace
	})
	return e
}

// sim is one episode.
type sim struct {
	*sched
	*agentPlayer
	life  *simLife
	calls sync.WaitGroup // of the driver, to the daemon
	most  int            // sandboxes
	// replies are the engine's last answers to each question, in all lives of the daemon.
	replies map[string]any
	// foreign are objects that this daemon must not touch.
	foreign []string
}

func newSim(dir string, seed uint64) *sim {
	s := &sim{sched: newSched(seed), replies: map[string]any{}}
	s.agentPlayer = &agentPlayer{
		player:  newPlayer(dir),
		prompts: map[string]string{}, texts: map[string]string{},
	}
	s.instance = "5e1f5e1f-0000-4000-8000-000000000000"
	s.most = 2 + s.rng.IntN(4)
	v := variant{idle: s.rng.IntN(4) == 0, pulls: s.rng.IntN(4) == 0, failing: s.rng.IntN(8) == 0, crowded: s.rng.IntN(4) == 0}
	v.cleanup, v.graced = s.rng.IntN(3) == 0, s.rng.IntN(2) == 0
	v.apply(s.player)
	vary := s.cfg
	s.shim.turn = func(what string) { s.await(what, nil, false) }
	s.engine.HealthBehavior = func(spec dockerx.ContainerSpec) (dockerx.Health, time.Duration) {
		return dockerx.HealthHealthy, 3*time.Second + apart(spec.Name)
	}
	s.cfg = func(c *controller.Config) {
		vary(c)
		s.life = &simLife{dead: make(chan struct{}), end: func() { s.watch.dies(); s.daemon.cancel() }}
		port := simPort{s.sched, s.life, s.replies}
		c.Store = &simStore{s.store, port, s.watch, s.reported}
		c.Engine = &simEngine{s.engine, port, s.watch, s.created}
		c.Execs = &simExecs{s.journals(), port, s.shim}
		c.Network.Firewall = &simFirewall{s.firewall, port}
	}
	s.built = func(c *controller.Controller) { c.Simulate(s.newQueue) }
	return s
}

// awayFor lets some time pass without a daemon, while the processes in the containers continue.
func (s *sim) awayFor(lapses int) {
	for range lapses {
		for range 5 {
			s.step()
		}
		s.sleep(time.Duration(s.rng.Int64N(int64(10 * time.Second))))
	}
}

// again kills the daemon between two steps, and starts it again.
func (s *sim) again() error {
	s.life.die()
	s.calls.Wait()
	return s.restart(-1)
}

func (s *sim) end() error {
	if s.life != nil {
		s.life.die()
	}
	s.calls.Wait()
	s.calm = true
	err := s.kill()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.shim.close()
	}()
	for ended := false; !ended; {
		for s.step() {
		}
		select {
		case <-done:
			ended = true
		case <-time.After(time.Second):
		}
	}
	err = errors.Join(err, s.engine.Close())
	time.Sleep(time.Second) // client-go's queues notice their shutdown at their next tick of half a second
	return err
}

// created records a primary that is created although the sandbox was READY before: no pass replaces a container.
func (s *sim) created(spec dockerx.ContainerSpec) {
	id := spec.Labels[naming.SandboxID]
	if spec.Labels[naming.Component] != naming.ComponentPrimary {
		return
	}
	events, err := s.store.Events(context.Background(), id, 0, 256)
	for _, e := range events {
		if e.GetEventType() == agboxv1.EventType_SANDBOX_READY {
			err = errors.Join(err, fmt.Errorf("%s was READY, and its primary is made again", id))
			break
		}
	}
	s.broken = errors.Join(s.broken, err)
}

// reported records an accepted report of a pass that worked on an older generation.
func (s *sim) reported(id string, r store.Report) {
	if sb, err := s.store.Sandbox(context.Background(), id); err == nil && sb.Desired.GetGeneration() != r.Generation {
		s.broken = errors.Join(s.broken, fmt.Errorf("%s is of generation %d, and took a report on %d", id, sb.Desired.GetGeneration(), r.Generation))
	}
}

// strangersMoveIn creates objects of another store, and of a sandbox that this store never had.
func (s *sim) strangersMoveIn() error {
	for _, labels := range []map[string]string{
		{naming.Instance: "another", naming.SandboxID: "theirs", naming.Component: naming.ComponentPrimary},
		{naming.Instance: s.instance, naming.SandboxID: "unknown", naming.Component: naming.ComponentPrimary},
	} {
		name := "foreign-" + labels[naming.SandboxID]
		s.engine.AddImage(name, dockerx.Image{})
		id, err := s.engine.CreateOutside(dockerx.ContainerSpec{Name: name, Image: name, Labels: labels})
		if err != nil {
			return err
		}
		s.foreign = append(s.foreign, id)
	}
	return nil
}

// checkForeign: all objects of others still exist.
func (s *sim) checkForeign() error {
	kept := s.engine.Keeps()
	for _, id := range s.foreign {
		if _, ok := kept[id]; !ok {
			return fmt.Errorf("container %s is not ours, and it is gone", id)
		}
	}
	return errors.Join(s.broken, s.watch.violated())
}

// play applies random events, then none, and checks that the world is as wanted.
func (s *sim) play() error {
	if err := os.MkdirAll(s.dir+"/src", 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(s.dir+"/src/file", []byte("copied"), 0o600); err != nil {
		return err
	}
	if err := s.strangersMoveIn(); err != nil {
		return err
	}
	if err := s.start(-1); err != nil {
		return err
	}
	for s.steps < episodeSteps {
		if err := s.next(); err != nil {
			return err
		}
	}
	return s.rest()
}

// next is one step, one act of a client or of a stranger, or a pause.
func (s *sim) next() error {
	synctest.Wait()
	if err := errors.Join(s.broken, s.watch.violated()); err != nil {
		return err
	}
	select {
	case <-s.life.dead:
		s.awayFor(s.rng.IntN(4))
		s.note("daemon starts")
		return s.again()
	default:
	}
	switch n := s.rng.IntN(100); {
	case n < 9:
		return s.happen()
	case n < 14:
		s.sleep(time.Duration(s.rng.Int64N(int64(100 * time.Millisecond))))
	default:
		if s.step() {
			return nil
		}
		lapse := []time.Duration{time.Second, 10 * time.Second, 40 * time.Second, 3 * time.Minute}[s.rng.IntN(4)]
		s.sleep(time.Duration(s.rng.Int64N(int64(lapse))))
	}
	return nil
}

// simHappenings are the acts of clients and strangers; repetitions raise the probability.
var simHappenings = strings.Fields(strings.Repeat("create exec exec exec cancel stop resume wake wake ", 3) + `
	agent agent prompt prompt prompt agent_stop agent_start agent_move interrupt delete delete_keeping pause pause demote timeout update update
	drain undrain detach hurry kill reboot engine_down engine_up engine_up engine_restart engine_restart_live late heal heal
	clock stop_at_once double_primary empty_lists hide_box hide_boxes disk_full disk_free disk_free disk_free swap_storage truth truth truth rename_box disconnect_box recover
	policy flush_rules flush_rules_unseen rules_fail`)

var strangers = strings.Fields(`kill_box oom_box remove_box start_box remove_network kill_service remove_service sick_service freeze_outside thaw_outside`)

// happen performs an act of a client or of a stranger.
func (s *sim) happen() error {
	what := strings.ReplaceAll(simHappenings[s.rng.IntN(len(simHappenings))], "_", " ")
	if s.rng.IntN(60) == 0 {
		what = strings.ReplaceAll(strangers[s.rng.IntN(len(strangers))], "_", " ")
	}
	a := act{what, s.rng.IntN(60)}
	switch what {
	case "create":
		if len(s.boxes) >= s.most {
			return nil
		}
		if s.rng.IntN(2) == 0 {
			s.note(fmt.Sprintf("act %v", a))
			return s.player.do(a) // with services, hooks and files
		}
	case "agent":
		if len(s.boxes) == 0 || len(s.agents) >= 3 {
			return nil
		}
	case "prompt", "agent stop", "agent start", "agent move", "interrupt", "agent delete":
		if len(s.agents) == 0 {
			return nil
		}
	case "kill":
		s.note("daemon is killed")
		return s.again()
	case "reboot":
		s.note("reboot")
		return s.reboot()
	case "engine restart":
		s.restartEngine()
		s.note("engine restarts")
		return nil
	case "hide boxes": // long enough for a verdict
		s.note(fmt.Sprintf("act %v", a))
		if err := s.do(a); err != nil {
			return err
		}
		s.pass(time.Duration(s.rng.Int64N(int64(2 * time.Minute))))
		return nil
	case "disk full", "disk free":
		s.note(what)
		s.full = what == "disk full"
		return nil
	case "drain", "undrain", "detach", "hurry":
		s.note(fmt.Sprintf("act %v", a))
		daemon := s.daemon.Controller
		s.calls.Go(func() { s.toDaemon(daemon, a) })
		return nil
	}
	s.note(fmt.Sprintf("act %v", a))
	return s.do(a)
}

// toDaemon is a call of the daemon, which waits there for the scheduler.
func (s *sim) toDaemon(c *controller.Controller, a act) {
	ctx := context.Background()
	switch a.what {
	case "drain":
		_, _ = c.Drain(ctx, store.DrainOptions{
			Mode: park, Wait: time.Duration(a.n) * time.Second, SaveEach: 5 * time.Second, SaveAll: 10 * time.Second,
		})
	case "detach":
		_, _ = c.Drain(ctx, store.DrainOptions{Mode: detach})
	case "undrain":
		_, _ = c.Undrain(ctx)
	case "hurry":
		_ = c.SaveNow(ctx)
	}
}

func (s *sim) reboot() error {
	s.life.die()
	s.calls.Wait()
	if err := s.kill(); err != nil {
		return err
	}
	s.boot++
	s.watch.boots()
	s.firewall.reboot()
	s.restartEngine()
	for s.step() { // no process outlives its host
	}
	s.shim.powerLost()
	return s.start(-1)
}

// restartEngine ends the engine's process and all containers. Its earlier answers are not stale answers of the next process.
func (s *sim) restartEngine() {
	s.engine.RestartEngine(false)
	s.loseHooks()
	for _, id := range s.boxes { // a PID 1 that is about to die, a step later, may start a requested hook
		sb, err := s.store.Sandbox(context.Background(), id)
		s.harmIf(id, err == nil && s.served(id) && sb.State == agboxv1.SandboxState_SANDBOX_STATE_PENDING)
	}
	clear(s.replies)
}

// restMinutes bounds the time in which the world comes to rest: longer than every backoff, grace period, late operation and deadline of a
// hook or a healthcheck together.
const restMinutes = 25

// calmNow marks the start of the rest in the trace.
const calmNow = "nothing goes wrong any more"

// rest ends all faults and waits until everything is as wanted.
func (s *sim) rest() error {
	synctest.Wait() // the last step is over
	s.note(calmNow)
	s.calm, s.full = true, false
	s.engine.Heal()
	s.firewall.fail(0)
	s.engine.Down(false)
	s.truth()
	if err := s.again(); err != nil {
		return err
	}
	if err := s.comesToRest(); err != nil {
		return err
	}
	for _, id := range s.boxes { // paused sandboxes must resume unchanged
		_, _ = s.store.RequestResume(context.Background(), id)
	}
	if err := s.comesToRest(); err != nil {
		return fmt.Errorf("after a resume: %w", err)
	}
	return nil
}

func (s *sim) comesToRest() (err error) {
	for range restMinutes {
		s.pass(time.Minute)
		if daemon := s.daemon.Controller; daemon.Vanished() != "" && len(s.reallyGone()) > 1 { // and the events of the removals were lost
			s.watch.confirms()
			s.calls.Go(func() { _, _ = daemon.ConfirmEngine(context.Background()) })
		}
		if err = s.look(func() error { return errors.Join(s.checkAll(), s.check(), s.checkForeign()) }); err == nil {
			return nil
		}
	}
	return err
}
