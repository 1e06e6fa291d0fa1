package controller_test

import (
	"cmp"
	"fmt"
	"hash"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"k8s.io/client-go/util/workqueue"

	"github.com/agbox/agbox/controller"
)

// sched decides what happens next. Every goroutine that is about to change or to read something outside of the daemon's memory (an engine
// call, its reply, a commit, a file, the start of a pass, an action of PID 1) waits here under a name. When all goroutines wait, the driver
// releases one of them, chosen by the seed, and waits again. So one effect happens at a time, and only the seed determines which one: Go's
// scheduler, the order of maps and the choice of a select have no influence.
type sched struct {
	// broken is a violation of a rule that must never be broken, even if it is repaired later.
	broken error
	rng    *rand.Rand

	mu      sync.Mutex
	waiting []*ticket
	queues  []*simQueue
	arrived chan struct{} // has a capacity of one
	calm    bool          // no faults any more
	full    bool          // the disk has no room for a write
	looks   bool          // the driver itself calls the daemon, while all others wait: that call proceeds
	steps   int
	hash    hash.Hash64
	trace   []string
}

// ticket is one waiting goroutine.
type ticket struct {
	name    string
	life    *simLife // nil: it is not part of a daemon
	faults  bool     // it may fail, or the daemon may die of it
	verdict chan verdict
}

// verdict is the fate of a goroutine's next effect.
type verdict int

const (
	run        verdict = iota
	killed             // the daemon is dead
	killBefore         // it dies now
	killAfter          // it dies after the effect, before the reply
	fails              // the effect does not happen, and the error leaves that open
	isLost             // the effect happens, with the same error
	twice              // the effect happens twice
	stale              // the engine repeats its last answer
	cutOff             // the engine's list lacks its first half
	repeated           // the engine's list has everything twice
	noRoom             // the effect does not happen, because the disk is full
)

func (v verdict) String() string {
	return [...]string{"", " KILLED", " KILL BEFORE", " KILL AFTER", " FAILS", " IS LOST", " TWICE", " IS STALE", " IS CUT OFF", " IS REPEATED", " FINDS NO ROOM"}[v]
}

// simLife is one life of the daemon.
type simLife struct {
	once sync.Once
	dead chan struct{}
	end  func()
}

func (l *simLife) die() { l.once.Do(func() { close(l.dead); l.end() }) }

func newSched(seed uint64) *sched {
	return &sched{rng: rand.New(rand.NewPCG(seed, 0x5eed)), arrived: make(chan struct{}, 1), hash: fnv.New64a()}
}

// await waits until the driver releases the goroutine.
func (s *sched) await(name string, life *simLife, faults bool) verdict {
	t := &ticket{name, life, faults, make(chan verdict, 1)}
	var dead <-chan struct{}
	if life != nil {
		dead = life.dead
	}
	s.mu.Lock()
	if s.looks {
		s.mu.Unlock()
		return run
	}
	s.waiting = append(s.waiting, t)
	s.mu.Unlock()
	s.arrive()
	select {
	case <-dead:
	default:
		select {
		case v := <-t.verdict:
			return v
		case <-dead:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(other *ticket) bool { return other == t })
	return killed
}

func (s *sched) arrive() {
	select {
	case s.arrived <- struct{}{}:
	default:
	}
}

var (
	errNoRoom = fmt.Errorf("disk full: %w: %w", syscall.ENOSPC, errdefs.ErrUnavailable)
	errLost   = fmt.Errorf("the reply was lost: %w", errdefs.ErrUnavailable)
)

// effect is a change that the daemon makes: it waits for the driver before the change, and before its reply.
func (s *sched) effect(name string, life *simLife, do func() error) error {
	return s.question(name, life, func(verdict) error { return do() })
}

// question is effect for a call that the engine may answer falsely: answer gets the kind of lie.
func (s *sched) question(name string, life *simLife, answer func(lie verdict) error) error {
	v := s.await(name, life, true)
	if v == killed {
		return errKilled // maybe in the middle of another step
	}
	begun := s.steps // no other step is under way
	switch v {
	case killBefore:
		life.die()
		return errKilled
	case fails:
		return errLost
	case noRoom:
		return errNoRoom
	case twice:
		_ = answer(v)
	}
	err := answer(v)
	if v == killAfter {
		life.die()
		return errKilled
	}
	if s.await(fmt.Sprintf("%s: reply to %d", name, begun), life, false) == killed {
		return errKilled
	}
	if v == isLost {
		return errLost
	}
	return err
}

// offer is one possible next step.
type offer struct {
	name  string
	t     *ticket
	queue *simQueue
	key   string
}

// offers returns the offers, ordered by their names alone.
func (s *sched) offers() []offer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []offer
	for _, t := range s.waiting {
		list = append(list, offer{name: t.name, t: t})
	}
	for _, q := range s.queues {
		for _, key := range q.ready() {
			list = append(list, offer{name: "pass " + q.name + " " + key, queue: q, key: key})
		}
	}
	slices.SortStableFunc(list, func(a, b offer) int { return cmp.Compare(a.name, b.name) })
	return list
}

// note appends to the trace.
func (s *sched) note(text string) {
	s.steps++
	_, _ = s.hash.Write([]byte(text + "\n"))
	s.trace = append(s.trace, fmt.Sprintf("%d %s %s", s.steps, time.Now().Format("15:04:05.000000"), text))
}

// step releases one waiting goroutine; false: none waits.
func (s *sched) step() bool {
	synctest.Wait()
	list := s.offers()
	if len(list) == 0 {
		return false
	}
	s.release(list[s.rng.IntN(len(list))])
	return true
}

// fault draws the fault of the next effect.
func (s *sched) fault(name string) verdict {
	v := run
	switch n := s.rng.IntN(250); {
	case n < 2:
		v = killBefore
	case n < 4:
		v = killAfter
	case n < 7:
		v = fails
	case n < 10:
		v = isLost
	case n < 12:
		v = twice
	case n < 20:
		v = []verdict{stale, stale, cutOff, repeated}[s.rng.IntN(4)]
	}
	isEngine, isQuestion := name[0] == 'E', isQuestion(name)
	switch {
	case !isEngine && needsRoom(name) && (s.full || v >= fails && v <= isLost):
		return noRoom
	case !isEngine && v >= fails, isQuestion && v == twice, !isQuestion && v >= stale: // only the engine loses and repeats effects
		return run
	}
	return v
}

// isQuestion reports whether a call is a question to the engine that may be answered falsely.
func isQuestion(name string) bool {
	return strings.HasPrefix(name, "Engine.List") || strings.HasPrefix(name, "Engine.Inspect")
}

// needsRoom reports whether an effect writes: a commit, or a file that is created or grows.
func needsRoom(name string) bool {
	if strings.HasPrefix(name, "Store.") {
		return true
	}
	file, _, _ := strings.Cut(strings.TrimPrefix(name, "File."), " ")
	return slices.Contains([]string{"Prepare", "Start", "Cancel", "Close", "Release", "AppendInbox", "CloseInbox"}, file)
}

func (s *sched) release(o offer) {
	v := run
	if o.t != nil && o.t.faults && !s.calm {
		v = s.fault(o.name)
	}
	s.note(o.name + v.String())
	if o.queue != nil {
		o.queue.hand(o.key)
		return
	}
	s.mu.Lock()
	s.waiting = slices.DeleteFunc(s.waiting, func(t *ticket) bool { return t == o.t })
	s.mu.Unlock()
	o.t.verdict <- v
}

// look runs the driver's own call of the daemon.
func (s *sched) look(ask func() error) error {
	synctest.Wait()
	set := func(on bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.looks = on
	}
	set(true)
	defer set(false)
	return ask()
}

// momentSteps exceeds the steps of all sandboxes and agents of an episode in one moment.
const momentSteps = 20_000

// pass lets time pass and everything that is due happen, in a random order.
func (s *sched) pass(d time.Duration) {
	end := time.Now().Add(d)
	for {
		for n := 0; s.step(); n++ {
			if n > momentSteps {
				s.broken = fmt.Errorf("%d steps in one moment: something is done again and again", n)
				return
			}
		}
		left := time.Until(end)
		if left <= 0 {
			return
		}
		s.sleep(left)
	}
}

// sleep lets time pass until something can happen, at most d.
func (s *sched) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return
		case <-s.arrived:
		}
		if synctest.Wait(); len(s.offers()) > 0 {
			return
		}
	}
}

// simQueue is a workqueue whose next key the driver chooses. One worker at a time owns a key.
type simQueue struct {
	name    string
	s       *sched
	limiter workqueue.TypedRateLimiter[string]

	mu         sync.Mutex
	dirty      map[string]bool
	processing map[string]bool
	later      map[string]*time.Timer
	due        map[string]time.Time
	idle       int
	next       chan string
	down       chan struct{}
}

var _ controller.SimQueue = (*simQueue)(nil)

func (s *sched) newQueue(name string, limiter workqueue.TypedRateLimiter[string]) controller.SimQueue {
	q := &simQueue{
		name: name, s: s, limiter: limiter, dirty: map[string]bool{}, processing: map[string]bool{},
		later: map[string]*time.Timer{}, due: map[string]time.Time{}, next: make(chan string), down: make(chan struct{}),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queues = append(s.queues, q)
	return q
}

func (q *simQueue) isDown() bool {
	select {
	case <-q.down:
		return true
	default:
		return false
	}
}

// ready returns the keys that an idle worker could take.
func (q *simQueue) ready() (keys []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.idle == 0 || q.isDown() {
		return nil
	}
	for k := range q.dirty {
		if !q.processing[k] {
			keys = append(keys, k)
		}
	}
	return keys
}

func (q *simQueue) hand(key string) {
	q.mu.Lock()
	delete(q.dirty, key)
	q.processing[key] = true
	q.idle--
	q.mu.Unlock()
	select {
	case q.next <- key:
	case <-q.down:
	}
}

func (q *simQueue) Add(key string) {
	q.mu.Lock()
	q.dirty[key] = true
	q.mu.Unlock()
	q.s.arrive()
}

func (q *simQueue) AddAfter(key string, d time.Duration) {
	if d <= 0 {
		q.Add(key)
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	at := time.Now().Add(d)
	if q.later[key] != nil && !at.Before(q.due[key]) || q.isDown() {
		return
	}
	if q.later[key] != nil {
		q.later[key].Stop()
	}
	q.due[key] = at
	q.later[key] = time.AfterFunc(d, func() {
		q.mu.Lock()
		if q.due[key].Equal(at) {
			delete(q.later, key)
			delete(q.due, key)
		}
		q.mu.Unlock()
		q.Add(key)
	})
}

func (q *simQueue) Get() (string, bool) {
	q.mu.Lock()
	q.idle++
	q.mu.Unlock()
	q.s.arrive()
	select {
	case key := <-q.next:
		return key, false
	case <-q.down:
		return "", true
	}
}

func (q *simQueue) Done(key string) {
	q.mu.Lock()
	delete(q.processing, key)
	q.mu.Unlock()
	q.s.arrive()
}

func (q *simQueue) ShutDown() {
	q.s.forget(q)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.isDown() {
		return
	}
	close(q.down)
	for _, t := range q.later {
		t.Stop()
	}
}

func (s *sched) forget(q *simQueue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queues = slices.DeleteFunc(s.queues, func(other *simQueue) bool { return other == q })
}

func (q *simQueue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.dirty)
}

func (q *simQueue) AddRateLimited(key string)  { q.AddAfter(key, q.limiter.When(key)) }
func (q *simQueue) Forget(key string)          { q.limiter.Forget(key) }
func (q *simQueue) NumRequeues(key string) int { return q.limiter.NumRequeues(key) }
func (q *simQueue) ShutDownWithDrain()         { q.ShutDown() }
func (q *simQueue) ShuttingDown() bool         { return q.isDown() }
