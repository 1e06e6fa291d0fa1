package controller_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/dockerx/dockertest"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/sandboxstate"
	"github.com/agbox/agbox/store"
)

const (
	// oneLook is less than the time between the two looks that prove an absence.
	oneLook = 9 * time.Second
	// passTime is longer than the time from the observation of a pass to its action. Where engine calls are slow, or fail late,
	// slowPassTime applies.
	passTime     = 5 * time.Second
	slowPassTime = time.Minute
)

// witness checks, at the moment of an action or a record, the rules that no later state may excuse. It knows the engine's true objects,
// whatever the engine answers. A nil witness checks nothing.
type witness struct {
	w       *world
	excuses *excuses
	clock   clockModel
	pass    time.Duration // passTime or slowPassTime

	mu        sync.Mutex
	broken    error
	destroyed map[string]bool // objects whose removal the daemon's present stream of events has reported
	confirmed bool            // an operator has confirmed the engine
	stopping  map[string]bool // containers that agboxd stops or removes
	lost      map[string]bool // execs whose supervisor died with its container; true: agboxd ended the container
	halfTold  time.Time       // when a list of all containers was last false
}

func (p *player) witnessed() *witness {
	p.watch = &witness{
		w: p.world, excuses: p.excuses, pass: passTime, destroyed: map[string]bool{}, stopping: map[string]bool{}, lost: map[string]bool{},
	}
	p.shim.lost = p.watch.supervisorDied
	return p.watch
}

// violated returns the first violation of a rule.
func (w *witness) violated() error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.broken
}

func (w *witness) breaks(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken == nil {
		w.broken = fmt.Errorf(format, args...)
	}
}

// event records a removal that the engine has reported to the daemon.
func (w *witness) event(e dockerx.Event) {
	if w == nil || e.Action != dockerx.ActionDestroy {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.destroyed[e.ID] = true
}

// subscribes records the start of a new stream of events.
func (w *witness) subscribes() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.destroyed)
}

func (w *witness) listLied() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.halfTold = time.Now()
}

func (w *witness) confirms() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.confirmed = true
}

// record returns the stored record of a sandbox.
func (w *witness) record(id string) (store.Sandbox, bool) {
	sb, err := w.w.store.Sandbox(context.Background(), id)
	return sb, err == nil
}

// ends runs before agboxd stops or removes a container, by ID.
func (w *witness) ends(op, containerID string) {
	if w == nil {
		return
	}
	c, ok := w.w.engine.Keeps()[containerID]
	if !ok {
		return
	}
	w.mu.Lock()
	w.stopping[containerID] = true
	w.mu.Unlock()
	id := c.Labels[naming.SandboxID]
	if c.Labels[naming.Instance] != w.w.store.InstanceID() {
		w.breaks("%s of %s, which is not ours", op, c.Name)
		return
	}
	sb, ok := w.record(id)
	if unswept, err := w.w.store.Unswept(context.Background(), id); err == nil && unswept && (!ok || sb.State == deleted) {
		w.breaks("%s of %s: cleanup_ttl deleted %s after a failure that may have been a wrong verdict", op, c.Name, id)
	}
	if ok && c.Running {
		w.endsRunning(op, c, sb)
	}
}

// endsRunning judges the end of a running container.
func (w *witness) endsRunning(op string, c dockertest.Kept, sb store.Sandbox) {
	isPrimary := c.ID == sb.Desired.GetObjects().GetPrimaryId()
	missing := sb.Progress.GetMissing()
	switch {
	case isPrimary && sb.State == failed && missing && sb.ErrorCode == plan.CodeContainerMissing && w.hasNetwork(sb): // or it fails for that
		w.breaks("%s of %s: %s is FAILED because it was missing, and it runs", op, c.Name, sb.ID)
	case missing && sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_DELETE && sb.Desired.GetReason() == "cleanup_ttl" && !w.excuses.isHarmed(sb.ID):
		w.breaks("%s of %s: cleanup_ttl deletes %s because it was missing, and it runs", op, c.Name, sb.ID)
	case isPrimary && op == dockerx.OpRemoveContainer && sb.State == ready && sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_RUN:
		w.breaks("%s of %s: %s is READY and wanted to run", op, c.Name, sb.ID)
	}
}

func (w *witness) hasNetwork(sb store.Sandbox) bool {
	return slices.ContainsFunc(w.w.engine.Networks(), func(n dockerx.Network) bool { return n.ID == sb.Desired.GetObjects().GetNetworkId() })
}

// removesNetwork runs before agboxd removes a network, by ID.
func (w *witness) removesNetwork(networkID string) {
	if w == nil {
		return
	}
	for _, n := range w.w.engine.Networks() {
		if n.ID != networkID {
			continue
		}
		id := n.Labels[naming.SandboxID]
		sb, ok := w.record(id)
		isPart := ok && sb.Desired.GetObjects().GetNetworkId() == networkID
		if isPart && sb.Desired.GetRunState() != storev1.RunState_RUN_STATE_DELETE && sb.ErrorCode != plan.CodeCreateFailed {
			w.breaks("the network of %s is removed, which is %s", id, sb.State)
		}
		if unswept, err := w.w.store.Unswept(context.Background(), id); err == nil && unswept && (!ok || sb.State == deleted) {
			w.breaks("the network of %s is removed: cleanup_ttl deleted it after a failure that may have been a wrong verdict", id)
		}
	}
}

// creates runs before agboxd creates a container or a network: the create must be recorded by then.
func (w *witness) creates(labels map[string]string) {
	if w == nil {
		return
	}
	id := labels[naming.SandboxID]
	if sb, ok := w.record(id); ok && sb.State == agboxv1.SandboxState_SANDBOX_STATE_PENDING && sb.Desired.GetAttempt() == storev1.Attempt_ATTEMPT_CREATE && !sb.Preparing {
		w.breaks("something of %s is created before SANDBOX_PREPARING is on record", id)
	}
}

// starts runs before agboxd starts a container: a restart must be recorded by then, or an interrupted one never gets its event.
func (w *witness) starts(containerID string) {
	if w == nil {
		return
	}
	w.mu.Lock()
	delete(w.stopping, containerID)
	w.mu.Unlock()
	c, ok := w.w.engine.Keeps()[containerID]
	if sb, found := w.record(c.Labels[naming.SandboxID]); ok && found {
		w.startsConfined(sb, c.Networks)
	}
	if !ok || c.Running || c.Labels[naming.Component] != naming.ComponentPrimary {
		return
	}
	sb, ok := w.record(c.Labels[naming.SandboxID])
	if ok && sb.State == ready && sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_RUN && sb.Progress.GetRestartRun() == nil {
		w.breaks("the primary of %s is started again, and no restart is on record", sb.ID)
	}
}

// report runs a report and judges the failures in it by the record before it.
func (w *witness) report(id string, r store.Report, do func() error) error {
	if w == nil {
		return do()
	}
	before, ok := w.record(id)
	err := do()
	if errors.Is(err, sandboxstate.ErrIllegal) {
		w.breaks("%v", err)
	}
	if err != nil || !ok {
		return err
	}
	for _, e := range r.Events {
		switch e.GetEventType() {
		case agboxv1.EventType_SANDBOX_FAILED:
			w.fails(before, e.GetSandboxPhase())
		case agboxv1.EventType_SANDBOX_DELETED:
			w.deletes(id)
		}
	}
	return nil
}

// deletes judges that a sandbox is DELETED: none of its containers that the engine has shown still runs, unless it is left to an operator.
// A container that does not run may be an orphan of a create that the engine ran late. So may one that was renamed from outside before its
// create recorded its ID, if the engine's lists also left it out.
func (w *witness) deletes(id string) {
	if unswept, err := w.w.store.Unswept(context.Background(), id); err != nil || unswept {
		return
	}
	for _, c := range w.w.engine.Keeps() {
		shown := c.Shown && (c.Seen.IsZero() || time.Since(c.Seen) > w.pass)
		if c.Labels[naming.SandboxID] == id && c.Running && shown && !strings.HasPrefix(c.Name, renamed) {
			w.breaks("%s is DELETED, and container %s runs", id, c.Name)
		}
	}
}

// fails judges a failure, including one that is withdrawn later.
func (w *witness) fails(sb store.Sandbox, why *agboxv1.SandboxPhaseDetails) {
	code := why.GetErrorCode()
	kept := w.w.engine.Keeps()
	primary, exists := primaryOf(sb, kept)
	switch {
	case code == plan.CodeContainerMissing && exists && !deniedForLong(primary):
		w.breaks("%s fails as missing, and its primary exists: shown %t, denied at %s, seen at %s", sb.ID, primary.Shown, primary.Denied, primary.Seen)
	case code == plan.CodeContainerMissing:
		if sb.State == agboxv1.SandboxState_SANDBOX_STATE_STOPPED && !w.mayBeGone(sb) {
			w.breaks("%s was stopped and fails as missing, and neither an event nor an operator says that its primary is gone", sb.ID)
		}
		w.vanishes(sb, kept)
	case code == plan.CodeContainerOOM && !w.excuses.mayFailForMemory(sb.ID):
		w.breaks("%s fails as out of memory, and the OOM killer did not end it", sb.ID)
	case w.excuses.mayFailForHalt(sb.ID) && strings.Contains(why.GetErrorMessage(), "stopped from outside"):
		w.excuses.harmIf(sb.ID, true)
	case w.excuses.mayFail(sb.ID):
	case code == plan.CodeResumeFailed && exists && deniedForLong(primary):
		w.vanishes(sb, kept)
	default:
		w.breaks("%s fails with %s (%s), and no fault broke it; it was %s, wanted %s", sb.ID, code, why.GetErrorMessage(), sb.State, sb.Desired.GetRunState())
	}
}

// primaryOf returns the recorded primary of a sandbox; of a create, which has recorded none, any with its labels.
func primaryOf(sb store.Sandbox, kept map[string]dockertest.Kept) (c dockertest.Kept, exists bool) {
	if id := sb.Desired.GetObjects().GetPrimaryId(); id != "" {
		c, exists = kept[id]
		return c, exists
	}
	for _, c := range kept {
		if c.Labels[naming.SandboxID] == sb.ID && c.Labels[naming.Component] == naming.ComponentPrimary {
			return c, true
		}
	}
	return c, false
}

// deniedForLong reports whether the engine has denied a container, by ID, name and list, for long enough that two looks found nothing.
func deniedForLong(c dockertest.Kept) bool {
	now := time.Now()
	if c.Denied.IsZero() || c.Shown && now.Sub(c.Seen) > slowPassTime {
		return false
	}
	if c.Shown {
		now = c.Seen
	}
	return now.Sub(c.Denied) >= oneLook
}

// vanishes judges the verdict that a primary is missing: if several vanish together an operator decides, unless the engine has reported the
// removal.
func (w *witness) vanishes(sb store.Sandbox, kept map[string]dockertest.Kept) {
	if w.mayBeGone(sb) {
		return
	}
	for _, id := range w.w.store.LiveIDs() {
		other, ok := w.record(id)
		c, exists := kept[other.Desired.GetObjects().GetPrimaryId()]
		isLive := other.State == ready || other.State == agboxv1.SandboxState_SANDBOX_STATE_STOPPED || other.State == agboxv1.SandboxState_SANDBOX_STATE_PAUSED
		if id == sb.ID || !ok || !exists || c.Shown || !isLive || other.Desired.GetRunState() == storev1.RunState_RUN_STATE_DELETE {
			continue
		}
		if time.Since(c.Denied) > w.pass {
			w.breaks("%s fails as missing, %s vanished with it, and no operator was asked", sb.ID, id)
		}
	}
}

// mayBeGone reports whether an event or an operator may have reported that the primary of a sandbox is gone.
func (w *witness) mayBeGone(sb store.Sandbox) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.confirmed || w.destroyed[sb.Desired.GetObjects().GetPrimaryId()] || time.Since(w.halfTold) < slowPassTime
}

// supervisorDied records that the end of an exec will never be in its journal.
func (w *witness) supervisorDied(exec, containerID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost[exec] = w.stopping[containerID]
}

// endsExec judges the end of an exec: it is lost only if its supervisor died, and not because agboxd ended a sandbox that no fault broke; or if it
// was dispatched in another boot.
func (w *witness) endsExec(execID string, end *storev1.ExecEnd) {
	if w == nil || end.GetErrorCode() != plan.CodeExecLost {
		return
	}
	ex, err := w.w.store.Exec(context.Background(), execID)
	if err != nil {
		return
	}
	w.mu.Lock()
	byUs, died := w.lost[execID]
	w.mu.Unlock()
	switch {
	case !died && cmp.Or(ex.Desired.GetBootId(), w.w.bootID()) == w.w.bootID():
		w.breaks("%s is EXEC_LOST, and its supervisor lives", execID)
	case byUs && !w.excuses.mayFail(ex.SandboxID):
		w.breaks("%s is EXEC_LOST because agboxd ended its container", execID)
	}
}

// deadline judges an action whose deadline has passed.
func (w *witness) deadline(what, id string, do func() (bool, error)) (bool, error) {
	if w == nil {
		return do()
	}
	changed, err := do()
	if changed && w.clock.holds(time.Now().Add(-w.pass)) {
		w.breaks("%s of %s, and the clock jumped %s ago", what, id, time.Since(w.clock.since()))
	}
	return changed, err
}

// ingests checks that the output of an agent is ingested from the position where the last ingest ended.
func (w *witness) ingests(id string, from *storev1.AgentPosition, do func() error) error {
	if w == nil {
		return do()
	}
	have, err := w.w.store.AgentPosition(context.Background(), id)
	if err != nil || have.GetIncarnation() != from.GetIncarnation() {
		return do()
	}
	if err := do(); err != nil {
		return err
	}
	if have.GetStdoutOffset() != from.GetStdoutOffset() || have.GetOutboxOffset() != from.GetOutboxOffset() {
		w.breaks("output of %s is taken in at %d and %d, and the last intake ended at %d and %d", id,
			from.GetStdoutOffset(), from.GetOutboxOffset(), have.GetStdoutOffset(), have.GetOutboxOffset())
	}
	return nil
}

// clockModel says when deadlines wait after a step of the wall clock. It knows less than the daemon: if it cannot know, no deadline waits.
type clockModel struct {
	mu             sync.Mutex
	grace          time.Duration
	accepted, skew time.Duration
	first, last    time.Time // of the steps since the clock was accepted; zero: it is accepted
	blind          time.Time // until then the model makes no statement
	died           time.Time // when the daemon died; zero: it runs
}

// Bounds of clockjump.
const (
	clockTolerance = 5 * time.Second
	clockGraces    = 6
)

// step records a step of the wall clock.
func (m *clockModel) step(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if end := m.end(); !m.first.IsZero() && now.Sub(end).Abs() < clockTolerance {
		m.blind = now.Add((clockGraces + 1) * m.grace) // the daemon may accept it just before or after this step
	} else if !m.first.IsZero() && now.After(end) {
		m.accepted, m.first = m.skew, time.Time{}
	}
	m.skew += d
	switch {
	case (m.skew - m.accepted).Abs() <= clockTolerance:
		m.first = time.Time{}
	case m.first.IsZero():
		m.first, m.last = now, now
	default:
		m.last = now
	}
}

// dies records that the daemon dies; revives records that another one starts.
func (w *witness) dies() {
	if w != nil {
		w.clock.dies()
	}
}

func (w *witness) revives() {
	if w != nil {
		w.clock.revives()
	}
}

// boots records that the host boots.
func (w *witness) boots() {
	if w != nil {
		w.clock.boots()
	}
}

func (m *clockModel) dies() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.died.IsZero() {
		m.died = time.Now()
	}
}

// revives records the start of a daemon. After a long absence it knows neither when the clock was stepped nor that its grace is over.
func (m *clockModel) revives() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); !m.first.IsZero() && !m.died.IsZero() && now.Sub(m.died) > time.Second {
		m.blind = now.Add((clockGraces + 1) * m.grace)
	}
	m.died = time.Time{}
}

// boots records that the host boots: its clock is accepted if it is synchronised.
func (m *clockModel) boots() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.accepted, m.first, m.blind = m.skew, time.Time{}, time.Now().Add((clockGraces+1)*m.grace)
}

func (m *clockModel) end() time.Time {
	end, most := m.last.Add(m.grace), m.first.Add(clockGraces*m.grace)
	if most.Before(end) {
		return most
	}
	return end
}

// holds reports whether deadlines waited at a moment, and still do.
func (m *clockModel) holds(at time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	return m.grace > 0 && !m.first.IsZero() && m.first.Before(at) && now.Before(m.end()) && now.After(m.blind)
}

func (m *clockModel) since() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// reallyGone returns the live sandboxes whose recorded primary, or that of a create that has started it, no longer exists, or one of whose containers is kept by another storage driver
// than the one that the operator chose; the latter may fail.
func (p *player) reallyGone() (ids []string) {
	kept, elsewhere := p.engine.Keeps(), map[string]bool{}
	for _, c := range kept {
		elsewhere[c.Labels[naming.SandboxID]] = elsewhere[c.Labels[naming.SandboxID]] || !c.Shown
	}
	for _, id := range p.store.LiveIDs() {
		sb, err := p.store.Sandbox(context.Background(), id)
		c, _ := primaryOf(sb, kept)
		started, _ := p.journals().Begun(id)
		if err == nil && ((sb.Desired.GetObjects().GetPrimaryId() != "" || started) && !c.Shown || elsewhere[id]) {
			p.harmIf(id, true)
			ids = append(ids, id)
		}
	}
	return ids
}

// runsElsewhere reports whether a container of a sandbox runs under another storage driver than the one that the operator chose.
func (p *player) runsElsewhere(id string) bool {
	for _, c := range p.engine.Keeps() {
		if c.Labels[naming.SandboxID] == id && c.Running && !c.Shown {
			return true
		}
	}
	return false
}

// checkVanished: no operator is asked about sandboxes that the engine shows.
func (p *player) checkVanished() error {
	line := p.daemon.Vanished()
	if line == "" {
		return nil
	}
	return errors.Join(errors.New("an operator is asked: "+line), p.watch.violated())
}

// isUnswept reports whether the remaining objects of a deleted sandbox are left to an operator.
func (p *player) isUnswept(id string) bool {
	unswept, err := p.store.Unswept(context.Background(), id)
	return err == nil && unswept
}

// hidePrimaries makes the engine deny the primaries of all sandboxes, or of all but the first.
func (p *player) hidePrimaries(all bool) {
	for _, c := range p.engine.Containers() {
		n := slices.Index(p.boxes, c.Labels[naming.SandboxID])
		if c.Labels[naming.Component] == naming.ComponentPrimary && (n > 0 || n == 0 && all) {
			p.engine.HideContainer(c.ID, true)
		}
	}
}
