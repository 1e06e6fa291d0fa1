package controller_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/controller/network"
	"github.com/agbox/agbox/controller/sandbox"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/dockerx/dockertest"
	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/host/clockjump"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/metrics"
	"github.com/agbox/agbox/store"
)

const image = "agbox-base:dev"

// world is everything that outlives a daemon: the engine, the disk, and the processes in the containers.
type world struct {
	sessions *fakeSessions // of the programs of agents; nil: they are not copied
	dir      string
	engine   *dockertest.Fake
	boot     int
	shim     *fakeShim
	firewall *fakeFirewall // the kernel's packet filter

	watch *witness // of the daemon's actions; nil: none

	instance string // of the store; "" for a random one
	store    *store.Store
	daemon   *daemonLife
	cfg      func(*controller.Config)
	built    func(*controller.Controller) // before it runs
	skew     atomic.Int64                 // of the wall clock, in nanoseconds
	slept    atomic.Int64                 // suspends of the host, in nanoseconds
	began    time.Time
	unsync   atomic.Bool // the clock is not synchronised
	// reboots counts, in addition to boot, the reboots that do not affect the engine and the containers.
	reboots int
}

// now returns the wall clock, with all steps and sleeps.
func (w *world) now() time.Time {
	return time.Now().Round(0).Add(time.Duration(w.skew.Load() + w.slept.Load()))
}

// clocks returns the readings of the host's clocks.
func (w *world) clocks() clockjump.Reading {
	awake, wall := time.Since(w.began), w.now()
	return clockjump.Reading{
		Wall: wall, SinceBoot: awake + time.Duration(w.slept.Load()), Awake: awake, BootID: fmt.Sprintf("boot-%d-%d", w.boot, w.reboots), Synced: !w.unsync.Load(),
	}
}

// bootID returns the boot ID of the engine's host.
func (w *world) bootID() string { return fmt.Sprintf("boot-%d", w.boot) }

// journals returns the files of the execs.
func (w *world) journals() *execjournal.Dir {
	d := execjournal.New(filepath.Join(w.dir, "logs"), filepath.Join(w.dir, "s"))
	d.Boot = w.bootID()
	return d
}

// daemonLife is one run of the controller.
type daemonLife struct {
	*controller.Controller
	cancel context.CancelFunc
	done   chan struct{}
}

func newWorld(dir string) *world {
	w := &world{dir: dir, began: time.Now(), engine: dockertest.NewFake(), cfg: func(*controller.Config) {}, built: func(*controller.Controller) {}}
	w.engine.AddImage(image, dockerx.Image{})
	w.engine.ListLag = 30 * time.Millisecond
	w.engine.Now = w.now
	w.shim, w.firewall = newFakeShim(w.engine, w.now), newFakeFirewall(w.engine)
	return w
}

// start runs a daemon whose side effects stop after fuse of them, or never if fuse is negative: a kill -9 between any two of them.
func (w *world) start(fuse int) error {
	s, err := store.Open(context.Background(), store.Options{
		Path: filepath.Join(w.dir, "ids.db"), InitialMmapSize: 1 << 20, Logger: quiet(), Now: w.now, Instance: w.instance, BootID: w.bootID(),
		OnFatal: func(err error) { panic(err) },
	})
	if err != nil {
		return err
	}
	w.store = s
	if _, err := s.NewEpoch(context.Background()); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	life := &daemonLife{cancel: cancel, done: make(chan struct{})}
	f := &fuseBox{left: fuse, blow: func() { w.watch.dies(); cancel() }}
	cfg := controller.Config{
		Store: &fusedStore{s, f, w.watch}, Engine: &fusedEngine{w.engine, f, w.watch}, Execs: &fusedExecs{w.journals(), f, w.shim},
		WatchExecs: w.shim.watch, WatchAgents: w.shim.said.watch, Host: sandbox.Host{ShimDir: "/shim"}, BootID: w.bootID(),
		ResyncInterval: time.Minute, Workers: 4, Clock: w.clocks, Network: network.Options{Firewall: &fusedFirewall{w.firewall, f}},
		Settings: controller.Settings{
			StopGrace: 10 * time.Second, CancelGrace: 10 * time.Second, HookTimeout: time.Minute, HealthTimeout: time.Minute,
			PidsLimit: 4096,
		},
		Logger: quiet(), Metrics: metrics.New(prometheus.NewRegistry(), metrics.Sets{}),
	}
	if w.sessions != nil {
		cfg.Sessions = w.sessions
	}
	w.cfg(&cfg)
	life.Controller = controller.New(cfg)
	w.built(life.Controller)
	w.daemon = life
	w.watch.revives()
	go func() {
		defer close(life.done)
		life.Run(ctx)
	}()
	return nil
}

// kill ends the daemon at any point of its work.
func (w *world) kill() error {
	if w.daemon == nil {
		return nil
	}
	w.watch.dies()
	w.daemon.cancel()
	<-w.daemon.done
	w.daemon = nil
	return w.store.Close()
}

func (w *world) restart(fuse int) error { return errors.Join(w.kill(), w.start(fuse)) }

func (w *world) close() error {
	err := w.kill()
	w.shim.close()
	err = errors.Join(err, w.engine.Close())
	time.Sleep(time.Second) // client-go's queues notice their shutdown at their next tick of half a second
	return err
}

func quiet() *slog.Logger {
	if os.Getenv("AGBOX_TEST_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return slog.New(slog.NewTextHandler(io.Discard, nil))
}

// fuseBox counts side effects down. After the last one, none happens.
type fuseBox struct {
	mu   sync.Mutex
	left int
	blow func()
}

var errKilled = errors.New("the daemon was killed")

func (f *fuseBox) burn() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left == 0 {
		f.blow()
		return errKilled
	}
	f.left--
	return nil
}

// guard runs one side effect: the daemon is killed before it, or between it and its reply, or not at all.
func (f *fuseBox) guard(effect func() error) error {
	if err := f.burn(); err != nil {
		return err
	}
	err := effect()
	if killed := f.burn(); killed != nil {
		return killed
	}
	return err
}

func guarded[T any](f *fuseBox, effect func() (T, error)) (v T, err error) {
	err = f.guard(func() error { v, err = effect(); return err })
	return v, err
}

// fakeShim plays PID 1 and the supervisors in every container of the fake engine, on the real files.
type fakeShim struct {
	sessions *fakeSessions // of agents' programs; nil: they keep none
	engine   *dockertest.Fake
	wall     func() time.Time
	turn     func(what string)              // returns when the effect may happen; set before use
	parks    func(b *fakeBox) bool          // whether PID 1 waits for agents after a TERM; nil: an older one, which does not. Set before use
	lost     func(exec, containerID string) // is called for each exec whose supervisor died; set before use
	wg       sync.WaitGroup

	mu     sync.Mutex
	boxes  map[string]*fakeBox
	notify func(sandboxID, execID string)
	ran    map[string]int
	ends   map[string]execjournal.Journal
	cached map[string]string // paths of journals that only the kernel's cache has, by key
	said   *said
}

// fakeBox is one run of one container.
type fakeBox struct {
	id, sandbox, ctl, logs string
	dead, term             chan struct{}
	wake                   chan struct{} // a request or a cancel was written: the signal of inotify
	noteOnce, termOnce     sync.Once
	reported               bool // used by pid1 only

	mu      sync.Mutex
	fences  []*fence
	cancels map[string]chan struct{}
	inboxes map[string]chan struct{}
	agents  int // living processes of agents, and commands that save their work
	frozen  bool
	turned  chan struct{} // closed and recreated when it is frozen or thawed
}

// turn freezes or thaws the processes in the box.
func (b *fakeBox) turn(frozen bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.frozen = frozen
	close(b.turned)
	b.turned = make(chan struct{})
}

func (b *fakeBox) now() (frozen bool, turned <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.frozen, b.turned
}

// thawed waits until the box is not frozen, and reports false if it died first.
func (b *fakeBox) thawed() bool {
	for {
		frozen, turned := b.now()
		if !frozen {
			return true
		}
		select {
		case <-b.dead:
			return false
		case <-turned:
		}
	}
}

func newFakeShim(engine *dockertest.Fake, wall func() time.Time) *fakeShim {
	s := &fakeShim{
		engine: engine, wall: wall, turn: func(string) {}, lost: func(string, string) {}, boxes: map[string]*fakeBox{}, notify: func(string, string) {},
		ran: map[string]int{}, ends: map[string]execjournal.Journal{}, cached: map[string]string{},
		said: &said{answered: map[string]int{}, notify: func(string, string) {}},
	}
	engine.OnStart(s.booted)
	engine.OnStop(s.died)
	engine.OnPause(s.turned)
	engine.StopBehavior = s.terminate
	return s
}

// watch simulates inotify: it passes notify to the shim while the daemon is alive.
func (s *fakeShim) watch(ctx context.Context, notify func(sandboxID, execID string)) error {
	s.mu.Lock()
	s.notify = notify
	s.mu.Unlock()
	notify("", "")
	<-ctx.Done()
	s.mu.Lock()
	s.notify = func(string, string) {}
	s.mu.Unlock()
	return nil
}

// watch is the same for the output of agents.
func (s *said) watch(ctx context.Context, notify func(sandboxID, execID string)) error {
	set := func(f func(string, string)) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.notify = f
	}
	set(notify)
	notify("", "")
	<-ctx.Done()
	set(func(string, string) {})
	return nil
}

func (s *fakeShim) tell(sandboxID, execID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notify(sandboxID, execID)
}

func (s *fakeShim) booted(d dockerx.ContainerDetail) {
	spec, ok := s.engine.Spec(d.ID)
	if !ok {
		return
	}
	b := &fakeBox{
		id: d.ID, dead: make(chan struct{}), term: make(chan struct{}), wake: make(chan struct{}, 1),
		cancels: map[string]chan struct{}{}, inboxes: map[string]chan struct{}{}, turned: make(chan struct{}),
	}
	b.wake <- struct{}{}
	for _, m := range spec.Mounts {
		switch m.Target {
		case execjournal.ContainerCtl:
			b.ctl = m.Source
		case execjournal.ContainerLogs:
			b.logs, b.sandbox = m.Source, filepath.Base(m.Source)
		}
	}
	if b.ctl == "" {
		return // a service runs its own program
	}
	_ = os.Remove(filepath.Join(b.logs, execjournal.StartedName))
	s.mu.Lock()
	s.boxes[d.ID] = b
	s.mu.Unlock()
	s.wg.Go(func() { s.pid1(b) })
}

func (s *fakeShim) died(d dockerx.ContainerDetail) {
	s.mu.Lock()
	b := s.boxes[d.ID]
	delete(s.boxes, d.ID)
	s.mu.Unlock()
	if b == nil {
		return
	}
	close(b.dead)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.fences { // the kernel frees the locks before anything observes the end
		f.die()
	}
}

func (s *fakeShim) turned(d dockerx.ContainerDetail) {
	s.mu.Lock()
	b := s.boxes[d.ID]
	s.mu.Unlock()
	if b != nil {
		b.turn(d.Paused)
	}
}

// runs returns how often an exec was started.
func (s *fakeShim) runs(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ran[key]
}

// terminate is the TERM of a stop: agents have a while to save their work, every exec records its end, then PID 1 ends.
func (s *fakeShim) terminate(id string) time.Duration {
	s.mu.Lock()
	b := s.boxes[id]
	s.mu.Unlock()
	takes, parks := 100*time.Millisecond+apart(id), false
	if b == nil {
		return takes
	}
	b.noteOnce.Do(func() {
		note := filepath.Join(b.logs, execjournal.TerminatedName)
		_ = os.WriteFile(note, nil, 0o600)
		_ = os.Chtimes(note, s.wall(), s.wall())
		if parks = s.parks != nil && b.count(0) > 0 && s.parks(b); parks {
			s.wg.Go(func() { s.park(b, takes) })
		}
		s.said.tell(b.sandbox, "")
	})
	if parks {
		return parkFor + time.Second // or earlier: it exits by itself
	}
	b.drain()
	return takes
}

// parkFor is what PID 1 waits for agents after a TERM.
const parkFor = 8 * time.Second

// park is the wait of PID 1 for agents, as package shim has it.
func (s *fakeShim) park(b *fakeBox, takes time.Duration) {
	for quiet, begun := 0, time.Now(); quiet < 10 && time.Since(begun) < parkFor; quiet++ {
		if b.count(0) > 0 {
			quiet = -1
		}
		select {
		case <-b.dead:
			return
		case <-b.term:
		case <-time.After(100 * time.Millisecond):
		}
	}
	b.drain()
	time.Sleep(takes)
	s.engine.ExitContainer(b.id, 0, false)
}

func (b *fakeBox) drain() { b.termOnce.Do(func() { close(b.term) }) }

// count changes the number of agents' processes and returns it.
func (b *fakeBox) count(change int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.agents += change
	return b.agents
}

// apart returns less than a millisecond, a different value for each name: processes that start together do not end together, because their
// order would not be reproducible.
func apart(name string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return time.Duration(h.Sum32() % uint32(time.Millisecond))
}

func (s *fakeShim) close() {
	s.mu.Lock()
	for _, b := range s.boxes {
		close(b.dead)
	}
	s.boxes = map[string]*fakeBox{}
	s.mu.Unlock()
	s.wg.Wait()
}

// pid1 handles the requests until its container is dead.
func (s *fakeShim) pid1(b *fakeBox) {
	for {
		select {
		case <-b.dead:
			return
		case <-b.term:
			<-b.dead
			return
		case <-b.wake:
			if b.ending() {
				continue
			}
			s.turn("pid1 " + b.sandbox + " " + b.id[:12]) // an abandoned run of the sandbox may have one, too
			if !b.thawed() {
				return
			}
			s.scan(b)
		}
	}
}

// ending reports whether the container is dead or got a TERM. All other work comes after that: a select between the two would have no
// reproducible order.
func (b *fakeBox) ending() bool {
	select {
	case <-b.dead:
		return true
	case <-b.term:
		return true
	default:
		return false
	}
}

// written wakes PID 1 of a sandbox.
func (s *fakeShim) written(sandboxID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.boxes {
		if b.sandbox == sandboxID {
			select {
			case b.wake <- struct{}{}:
			default:
			}
		}
	}
}

func (s *fakeShim) scan(b *fakeBox) {
	entries, err := os.ReadDir(filepath.Join(b.ctl, execjournal.ExecDir))
	if err != nil {
		return
	}
	for _, e := range entries {
		id, cancel, ok := execjournal.RequestID(e.Name())
		switch {
		case e.Name() == execjournal.ReleaseName:
			s.report(b)
		case !ok:
		case cancel:
			b.cancelled(id)
		default:
			s.begin(b, id)
		}
	}
}

// report is what PID 1 says after its release.
func (s *fakeShim) report(b *fakeBox) {
	if b.reported {
		return
	}
	b.reported = true
	if err := os.WriteFile(filepath.Join(b.logs, execjournal.StartedName), nil, 0o600); err == nil {
		s.tell(b.sandbox, execid.Main)
	}
}

// key returns a name for an exec that is unique among all sandboxes: hooks have the same IDs in each.
func (b *fakeBox) key(execID string) string {
	if execid.Internal(execID) {
		return b.sandbox + execID
	}
	return execID
}

// powerLost drops the journals that are not on disk, or leaves them empty or torn, or keeps them: the kernel may have written any part.
func (s *fakeShim) powerLost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, path := range s.cached {
		switch apart(key) % 4 {
		case 0:
			_ = os.Remove(path)
		case 1:
			_ = os.Truncate(path, 0)
		case 2:
			_ = os.Truncate(path, 20)
		}
	}
	clear(s.cached)
}

func (b *fakeBox) cancelled(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ch := b.cancels[id]; ch != nil {
		close(ch)
		b.cancels[id] = nil
	}
}

// begin is the fence of the real shim: the lock, then the journal by exclusive link, then the command.
func (s *fakeShim) begin(b *fakeBox, id string) {
	b.mu.Lock()
	_, known := b.cancels[id]
	b.mu.Unlock()
	data, err := os.ReadFile(filepath.Join(b.ctl, execjournal.ExecDir, execjournal.RequestName(id)))
	if known || err != nil {
		return
	}
	req, err := execjournal.DecodeRequest(data, id)
	if err != nil {
		return
	}
	if boot, err := os.Readlink(filepath.Join(b.ctl, execjournal.ExecDir, execjournal.ReleaseName)); err == nil && req.BootID != "" && req.BootID != boot {
		return // agboxd closes it
	}
	f, err := s.fence(b, req)
	if err != nil {
		return
	}
	s.mu.Lock()
	s.ran[b.key(id)]++
	if req.BootID != "" {
		s.cached[b.key(id)] = filepath.Join(b.logs, execjournal.JournalName(id))
	}
	s.mu.Unlock()
	cancel := make(chan struct{})
	b.mu.Lock()
	b.cancels[id] = cancel
	b.mu.Unlock()
	s.wg.Go(func() {
		s.tell(b.sandbox, req.ExecID) // its journal exists
		s.supervise(b, req, f, cancel)
	})
}

func (s *fakeShim) supervise(b *fakeBox, req execjournal.Request, f *fence, cancel chan struct{}) {
	defer f.free()
	if _, _, ok := execid.OfAgent(req.ExecID); ok || execid.IsHelper(req.ExecID) {
		b.count(1)
		defer b.count(-1)
	}
	what, code := s.execute(b, req, cancel)
	end := f.journal
	end.State, end.ExitCode = execjournal.StateEnded, code
	switch what {
	case died:
		return
	case wasCancelled:
		end.Cancelled, end.ExitCode, end.Signal = true, 143, 15
	case wasStopped:
		end.Stopped, end.ExitCode, end.Signal = true, 143, 15
	case byItself:
		if code == killedForMemory {
			end.OOM, end.OOMKills, end.Signal = true, 1, 9
			s.engine.MarkOOM(b.id) // the engine keeps the flag as long as the container runs
		}
	}
	s.turn("end " + b.key(req.ExecID))
	end.EndedAtNanos = s.wall().UnixNano()
	if f.end(end) == nil {
		s.mu.Lock()
		s.ends[b.key(req.ExecID)] = end
		delete(s.cached, b.key(req.ExecID)) // the end is synced
		s.mu.Unlock()
		s.tell(b.sandbox, req.ExecID)
	}
}

// execute runs a command and returns how it ended.
func (s *fakeShim) execute(b *fakeBox, req execjournal.Request, cancel <-chan struct{}) (what, code int) {
	switch {
	case req.Command[0] == "agent":
		return newFakeAgent(s, b, req, cancel).run()
	case req.Command[0] == "summarize":
		return s.summarize(b, req, cancel)
	case strings.Contains(strings.Join(req.Command, " "), "git rev-parse"):
		return b.outlast(0, cancel), 66 // there is no work tree
	}
	var millis int
	if _, err := fmt.Sscanf(strings.TrimPrefix(strings.Join(req.Command, " "), "sh -c "), "sleep %d %d", &millis, &code); err != nil {
		panic(err)
	}
	return b.outlast(time.Duration(millis)*time.Millisecond+apart(req.ExecID), cancel), code
}

// killedForMemory is the exit code of a command that the OOM killer ended.
const killedForMemory = 137

// The reasons for the end of a command, or of its wait.
const (
	byItself = iota
	died
	wasCancelled
	wasStopped
	fed
	running // it has not ended
)

// outlast runs a command for the given time. Time in which it is frozen does not count.
func (b *fakeBox) outlast(left time.Duration, cancel <-chan struct{}) int {
	what, _ := b.await(left, cancel, nil)
	return what
}

// await is outlast that also ends when there is more to read, and lasts forever if left is negative.
func (b *fakeBox) await(left time.Duration, cancel, more <-chan struct{}) (what int, rest time.Duration) {
	for b.thawed() {
		_, turned := b.now()
		var over <-chan time.Time
		if left >= 0 {
			over = time.After(left)
		}
		begun, what := time.Now(), running
		select {
		case <-b.dead:
		case <-cancel:
		case <-b.term:
		case <-turned:
		case <-more:
			what = fed
		case <-over:
			what = byItself
		}
		if end := b.ended(cancel); end != running {
			return end, 0
		}
		left = b.lessThan(left, begun)
		if what != running {
			return what, left
		}
	}
	return died, 0
}

// ended returns what has ended a command; if several things have, the strongest.
func (b *fakeBox) ended(cancel <-chan struct{}) int {
	for _, end := range []struct {
		what int
		came <-chan struct{}
	}{{died, b.dead}, {wasCancelled, cancel}, {wasStopped, b.term}} {
		select {
		case <-end.came:
			return end.what
		default:
		}
	}
	return running
}

// lessThan returns the rest of a duration; a negative one is endless.
func (*fakeBox) lessThan(left time.Duration, begun time.Time) time.Duration {
	if left < 0 {
		return left
	}
	return max(left-time.Since(begun), 0)
}

// The ports of a daemon that may be killed.

type fusedStore struct {
	*store.Store
	f     *fuseBox
	watch *witness
}

func (s *fusedStore) Report(ctx context.Context, id string, r store.Report) error {
	return s.f.guard(func() error {
		return s.watch.report(id, r, func() error { return s.Store.Report(ctx, id, r) })
	})
}

// deadline is an action whose deadline has passed.
func (s *fusedStore) deadline(what, id string, do func() (bool, error)) (bool, error) {
	return guarded(s.f, func() (bool, error) { return s.watch.deadline(what, id, do) })
}

func (s *fusedStore) RequestCleanup(ctx context.Context, id string, after time.Duration, m clockjump.Moment) (bool, error) {
	return s.deadline("cleanup_ttl", id, func() (bool, error) { return s.Store.RequestCleanup(ctx, id, after, m) })
}

func (s *fusedStore) RequestIdleStop(ctx context.Context, id string, after time.Duration, m clockjump.Moment) (bool, error) {
	return s.deadline("idle_ttl", id, func() (bool, error) { return s.Store.RequestIdleStop(ctx, id, after, m) })
}

func (s *fusedStore) RequestPauseCleanup(ctx context.Context, id string, after time.Duration, m clockjump.Moment) (bool, error) {
	return s.deadline("stopped_gc_after", id, func() (bool, error) { return s.Store.RequestPauseCleanup(ctx, id, after, m) })
}

func (s *fusedStore) RequestStop(ctx context.Context, id, reason string) (bool, error) {
	return guarded(s.f, func() (bool, error) { return s.Store.RequestStop(ctx, id, reason) })
}

func (s *fusedStore) RequestExpire(ctx context.Context, id string, m clockjump.Moment) (bool, error) {
	return s.deadline("timeout", id, func() (bool, error) { return s.Store.RequestExpire(ctx, id, m) })
}

func (s *fusedStore) Demote(ctx context.Context, id string) (bool, error) {
	return guarded(s.f, func() (bool, error) { return s.Store.Demote(ctx, id) })
}

func (s *fusedStore) SetMarkerWritten(ctx context.Context) error {
	return s.f.guard(func() error { return s.Store.SetMarkerWritten(ctx) })
}

func (s *fusedStore) SetEngineIdentity(ctx context.Context, id *storev1.EngineIdentity) error {
	return s.f.guard(func() error { return s.Store.SetEngineIdentity(ctx, id) })
}

func (s *fusedStore) GiveUp(ctx context.Context, confirmed map[string]*storev1.GivenUp) error {
	return s.f.guard(func() error { return s.Store.GiveUp(ctx, confirmed) })
}

func (s *fusedStore) ForgetGivenUp(ctx context.Context, id string) error {
	return s.f.guard(func() error { return s.Store.ForgetGivenUp(ctx, id) })
}

type fusedEngine struct {
	*dockertest.Fake
	f     *fuseBox
	watch *witness
}

func (e *fusedEngine) Events(ctx context.Context, since time.Time, labels map[string]string, ready func(), handle func(dockerx.Event)) error {
	e.watch.subscribes()
	return e.Fake.Events(ctx, since, labels, ready, func(ev dockerx.Event) {
		e.watch.event(ev)
		handle(ev)
	})
}

func (e *fusedEngine) CreateContainer(ctx context.Context, spec dockerx.ContainerSpec) (string, error) {
	return guarded(e.f, func() (string, error) {
		e.watch.creates(spec.Labels)
		return e.Fake.CreateContainer(ctx, spec)
	})
}

func (e *fusedEngine) StartContainer(ctx context.Context, id string) error {
	return e.f.guard(func() error {
		e.watch.starts(id)
		return e.Fake.StartContainer(ctx, id)
	})
}

func (e *fusedEngine) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	return e.f.guard(func() error {
		e.watch.ends(dockerx.OpStopContainer, id)
		return e.Fake.StopContainer(ctx, id, grace)
	})
}

func (e *fusedEngine) PauseContainer(ctx context.Context, id string) error {
	return e.f.guard(func() error { return e.Fake.PauseContainer(ctx, id) })
}

func (e *fusedEngine) UnpauseContainer(ctx context.Context, id string) error {
	return e.f.guard(func() error { return e.Fake.UnpauseContainer(ctx, id) })
}

func (e *fusedEngine) RemoveContainer(ctx context.Context, id string) error {
	return e.f.guard(func() error {
		e.watch.ends(dockerx.OpRemoveContainer, id)
		return e.Fake.RemoveContainer(ctx, id)
	})
}

func (e *fusedEngine) CreateNetwork(ctx context.Context, spec dockerx.NetworkSpec) (dockerx.Network, error) {
	return guarded(e.f, func() (dockerx.Network, error) {
		e.watch.creates(spec.Labels)
		return e.Fake.CreateNetwork(ctx, spec)
	})
}

func (e *fusedEngine) UpdateContainer(ctx context.Context, id string, l dockerx.Limits) error {
	return e.f.guard(func() error { return e.Fake.UpdateContainer(ctx, id, l) })
}

func (e *fusedEngine) WriteTar(ctx context.Context, id, dir string, within time.Duration, tar io.Reader) error {
	return e.f.guard(func() error { return e.Fake.WriteTar(ctx, id, dir, within, tar) })
}

func (e *fusedEngine) CreateVolume(ctx context.Context, name string, labels map[string]string) error {
	return e.f.guard(func() error { return e.Fake.CreateVolume(ctx, name, labels) })
}

func (e *fusedEngine) RemoveVolume(ctx context.Context, name string) error {
	return e.f.guard(func() error { return e.Fake.RemoveVolume(ctx, name) })
}

func (e *fusedEngine) ConnectNetwork(ctx context.Context, networkID, containerID string, aliases []string) error {
	return e.f.guard(func() error { return e.Fake.ConnectNetwork(ctx, networkID, containerID, aliases) })
}

func (e *fusedEngine) RemoveNetwork(ctx context.Context, id string) error {
	return e.f.guard(func() error {
		e.watch.removesNetwork(id)
		return e.Fake.RemoveNetwork(ctx, id)
	})
}

type fusedExecs struct {
	*execjournal.Dir
	f    *fuseBox
	shim *fakeShim
}

func (d *fusedExecs) Start(sandboxID string, r execjournal.Request) error {
	return d.f.guard(func() error {
		defer d.shim.written(sandboxID)
		return d.Dir.Start(sandboxID, r)
	})
}

func (d *fusedExecs) Cancel(sandboxID, execID, nonce string) error {
	return d.f.guard(func() error {
		defer d.shim.written(sandboxID)
		return d.Dir.Cancel(sandboxID, execID, nonce)
	})
}

func (d *fusedExecs) Close(sandboxID, execID, nonce, reason string) (execjournal.Status, error) {
	return guarded(d.f, func() (execjournal.Status, error) { return d.Dir.Close(sandboxID, execID, nonce, reason) })
}

func (d *fusedExecs) Release(sandboxID string) error {
	return d.f.guard(func() error {
		defer d.shim.written(sandboxID)
		return d.Dir.Release(sandboxID)
	})
}

func (d *fusedExecs) ReplaceServiceLog(sandboxID, service string, data []byte) error {
	return d.f.guard(func() error { return d.Dir.ReplaceServiceLog(sandboxID, service, data) })
}

func (d *fusedExecs) Withhold(sandboxID string) error {
	return d.f.guard(func() error { return d.Dir.Withhold(sandboxID) })
}

func (d *fusedExecs) Forget(sandboxID, execID string) error {
	return d.f.guard(func() error { return d.Dir.Forget(sandboxID, execID) })
}

func (d *fusedExecs) Remove(sandboxID string) error {
	return d.f.guard(func() error { return d.Dir.Remove(sandboxID) })
}

func (d *fusedExecs) RemoveInputs(sandboxID string) error {
	return d.f.guard(func() error { return d.Dir.RemoveInputs(sandboxID) })
}
