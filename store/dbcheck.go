package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/sandboxstate"
)

// Finding is one fault in a database.
type Finding struct {
	// Bucket and Key of the record; Key is empty if the fault concerns a whole bucket. The keys of events are their sequences.
	Bucket, Key string
	// Problem is a sentence without the record's content.
	Problem string
}

func (f Finding) String() string {
	if f.Key == "" {
		return f.Bucket + ": " + f.Problem
	}
	return fmt.Sprintf("%s/%s: %s", f.Bucket, f.Key, f.Problem)
}

// CheckRecords reads every record of the database at path, which no process may have open, and calls found for each record that does not
// decode, is missing beside its companions, or contradicts itself. The auditor (internal/audit) checks how the records fit together.
// CheckRecords changes nothing. Run CheckFile in a child process before it, because CheckRecords trusts the pages. Errors: as CheckFile;
// ErrFailedPrecondition for a file of a newer agboxd.
func CheckRecords(path string, found func(Finding)) error {
	return viewFile(path, func(tx *bolt.Tx) error {
		c := &checker{found: found, seen: map[[2]string]bool{}}
		c.loader = loader{tx, c.corrupt}
		if err := c.run(); err != nil {
			return fmt.Errorf("check %s: %w", path, err)
		}
		return nil
	})
}

// checker checks one database in one transaction. Its loader reports records that do not decode.
type checker struct {
	loader
	found func(Finding)
	seen  map[[2]string]bool // reported records that do not decode, by bucket and key
}

func (c *checker) corrupt(r Corrupt) {
	if at := [2]string{r.Bucket, r.Key}; !c.seen[at] {
		c.seen[at] = true
		c.found(Finding{r.Bucket, r.Key, r.Err.Error()})
	}
}

func (c *checker) report(bucket, key, format string, args ...any) {
	c.found(Finding{bucket, key, fmt.Sprintf(format, args...)})
}

func (c *checker) has(bucket, key string) bool { return get(c.tx, bucket, []byte(key)) != nil }

// checkedBuckets and checkedMeta are the types of records that the loader does not read; nil: an integer.
var (
	checkedBuckets = map[string]proto.Message{
		bucketSandboxID: nil, bucketExecID: nil, bucketTrimmed: nil, bucketDeletedAt: nil, bucketUnswept: nil, bucketUnproven: nil, bucketAgentID: nil,
		bucketNames: &storev1.NameRef{}, bucketExecRefs: &storev1.ExecRef{}, bucketGivenUp: &storev1.GivenUp{},
		bucketGatewayKeys: &storev1.GatewayKey{}, bucketTemplateBuilds: &storev1.TemplateBuild{},
	}
	checkedMeta = map[string]proto.Message{
		keyEngineMarker: nil, keyRebuild: nil, keyLineage: nil, keyEpoch: nil,
		keyEngineIdentity: &storev1.EngineIdentity{}, keyDrain: &storev1.DrainRecord{}, keyClock: &storev1.ClockRecord{},
		keyGatewaySecret: &storev1.GatewaySecret{},
	}
)

func (c *checker) run() error {
	if err := c.meta(); err != nil {
		return err
	}
	for _, bucket := range slices.Sorted(maps.Keys(checkedBuckets)) {
		for k, v := range records(c.tx, bucket, nil) {
			c.decodes(bucket, string(k), v, checkedBuckets[bucket])
		}
	}
	for k := range records(c.tx, bucketGivenUp, nil) {
		if id := string(k); !hasRecord(c.tx, id) || c.has(bucketDeletedAt, id) {
			c.report(bucketGivenUp, id, "an operator confirmed that it vanished, and it is not live")
		}
	}
	for _, id := range c.owners([]string{bucketConfig, bucketDesired, bucketState, bucketProgress, bucketTrimmed, bucketDeletedAt},
		[]string{prefixEvents, prefixExecConfig, prefixExecDesired, prefixExecStatus}) {
		c.sandbox(id)
	}
	for _, id := range c.owners([]string{bucketAgentConfig, bucketAgentDesired, bucketAgentStatus, bucketAgentPosition},
		[]string{prefixAgentEvents, prefixAgentTransitions, prefixAgentPrompts, prefixAgentPromptIDs}) {
		c.agent(id)
	}
	return nil
}

// owners returns the IDs that are keys of the buckets or name a bucket with one of the prefixes, sorted.
func (c *checker) owners(buckets, prefixes []string) []string {
	ids := map[string]bool{}
	for _, bucket := range buckets {
		for k := range records(c.tx, bucket, nil) {
			ids[string(k)] = true
		}
	}
	_ = c.tx.ForEach(func(name []byte, _ *bolt.Bucket) error { // fn returns no error
		for _, prefix := range prefixes {
			if id, ok := strings.CutPrefix(string(name), prefix); ok {
				ids[id] = true
			}
		}
		return nil
	})
	return slices.Sorted(maps.Keys(ids))
}

func (c *checker) meta() error {
	schema, err := decodeInt(get(c.tx, bucketMeta, []byte(keySchema)))
	_ = c.noted(bucketMeta, keySchema, "", err) // noted reports it
	if err := CheckSchema(schema); err != nil {
		return err
	}
	if instance, err := required[*storev1.Instance](c.loader, bucketMeta, keyInstance, ""); err == nil && instance.GetUuid() == "" {
		c.report(bucketMeta, keyInstance, "there is no UUID in it")
	}
	for _, key := range slices.Sorted(maps.Keys(checkedMeta)) {
		if v := get(c.tx, bucketMeta, []byte(key)); v != nil {
			c.decodes(bucketMeta, key, v, checkedMeta[key])
		}
	}
	return nil
}

// decodes reports a record that does not decode into m, or as an integer if m is nil.
func (c *checker) decodes(bucket, key string, v []byte, m proto.Message) {
	var err error
	if m != nil {
		err = decode(v, m.ProtoReflect().New().Interface())
	} else {
		_, err = decodeInt(v)
	}
	_ = c.noted(bucket, key, "", err) // noted reports it
}

// sandbox checks one sandbox, live or deleted. The loader reports what does not decode or is missing.
func (c *checker) sandbox(id string) {
	isDeleted := c.has(bucketDeletedAt, id)
	if isDeleted && !c.has(bucketConfig, id) && !c.has(bucketDesired, id) {
		return // an unfinished purge, which the next start completes
	}
	sb := c.loader.sandbox(id, nil, nil)
	n, rebuilt := 0, false
	for k, v := range records(c.tx, prefixEvents+id, nil) {
		ev, _ := c.event(id)(k, v)
		rebuilt = rebuilt || isRebuilt(ev)
		if n++; n > 1 && isRebuilt(ev) {
			c.report(prefixEvents+id, fmt.Sprint(ev.GetSequence()), "a rebuilt record begins with it, and there are events before it")
		}
	}
	if n := c.trimmed(id); c.has(prefixEvents+id, string(encodeInt(n))) {
		c.report(bucketTrimmed, id, "event %d went, it says, and it is there", n)
	}
	for _, prefix := range []string{prefixExecConfig, prefixExecDesired, prefixExecStatus} {
		for k := range records(c.tx, prefix+id, nil) {
			execID := string(k)
			if e, err := c.exec(id, execID); err == nil && prefix == prefixExecStatus && e.End.GetSequence() <= e.Desired.GetStartedSequence() {
				c.report(prefix+id, execID, "it ended with event %d and began with %d", e.End.GetSequence(), e.Desired.GetStartedSequence())
			}
		}
	}
	if sb.Desired == nil || sb.State == 0 {
		return
	}
	if told := sb.Desired.GetRehydrated() != nil; told != rebuilt {
		c.report(bucketDesired, id, "that the record was rebuilt is %v, and the events say %v", told, rebuilt)
	}
	c.lifetime(id, sb.Desired, sb.State)
}

// lifetime checks that the desired state goes with the state, that only a pause is demoted, and that a stop has no deadline.
func (c *checker) lifetime(id string, d *storev1.Desired, state agboxv1.SandboxState) {
	run := d.GetRunState()
	pause, stop := run == storev1.RunState_RUN_STATE_PAUSE, run == storev1.RunState_RUN_STATE_STOP
	if d.GetDeadlineAt() < 0 || d.GetDeadlineFrom() < 0 || d.GetDemotedAt() < 0 {
		c.report(bucketDesired, id, "it names a time before 1970")
	}
	if d.GetDemotedAt() != 0 && !pause {
		c.report(bucketDesired, id, "it is demoted, and no pause is wanted but %s", run)
	}
	if stop && (d.GetDeadlineAt() != 0 || d.GetDeadlineSet()) {
		c.report(bucketDesired, id, "it is to be stopped, and a deadline is left")
	}
	if !sandboxstate.Allows(state, run) {
		c.report(bucketDesired, id, "it is %s, and the desired state is %s", state, run)
	}
}

// agent checks one agent. If its delete was requested, some records may be removed already. The loader reports what does not decode.
func (c *checker) agent(id string) {
	a := c.loader.agent(id)
	_, _ = c.position(id)
	if a.Corrupt {
		return
	}
	if to := a.Desired.GetSandboxId(); to != a.Spec.GetSandboxId() {
		c.report(bucketAgentDesired, id, "it is in sandbox %q, and its spec says %q", to, a.Spec.GetSandboxId())
	}
	if a.Desired.GetRun() == storev1.AgentRun_AGENT_RUN_DELETE {
		return
	}
	c.agentPrompts(a)
	for k, v := range records(c.tx, prefixAgentTransitions+id, nil) {
		_, _ = c.transition(id)(k, v)
	}
	c.agentEvents(a)
}

// agentPrompts checks that the claimed prompt exists, that each prompt has the text of its ID, and that the queue is within its limit.
func (c *checker) agentPrompts(a *Agent) {
	_, _, _ = c.claimedPrompt(a) // the loader reports errors
	texts := map[uint64]string{}
	c.eachPrompt(a.ID, func(n uint64, p *storev1.AgentPrompt) bool { texts[n] = string(hashOf(p.GetText())); return true })
	bucket := prefixAgentPromptIDs + a.ID
	for k := range records(c.tx, bucket, nil) {
		key := string(k)
		ref, err := required[*storev1.AgentPromptRef](c.loader, bucket, key, "")
		switch n := ref.GetNumber(); {
		case err != nil: // required reports it
		case n > a.Status.GetPrompts():
			c.report(bucket, key, "it is number %d of %d", n, a.Status.GetPrompts())
		case texts[n] != "" && texts[n] != string(ref.GetTextSha256()):
			c.report(prefixAgentPrompts+a.ID, fmt.Sprint(n), "its text is not the one of its ID")
		}
	}
	if c.countPrompts(a); a.Queued > maxPrompts+1 { // one may have returned to a full queue
		c.report(prefixAgentPrompts+a.ID, "", "%d prompts wait", a.Queued)
	}
}

// agentEvents checks that the history has the recorded size and newest checkpoint, and tells of the newest transition.
func (c *checker) agentEvents(a *Agent) {
	st, bucket := a.Status, prefixAgentEvents+a.ID
	var bytes, checkpoint, told uint64
	for k, v := range records(c.tx, bucket, nil) {
		ev, err := c.agentEvent(a.ID)(k, v)
		if err != nil || ev.GetSequence() <= st.GetTruncatedThrough() {
			continue // reported, or about to be removed
		}
		bytes += uint64(len(v))
		if ev.GetEventType() == agboxv1.AgentEventType_AGENT_CHECKPOINT {
			checkpoint = ev.GetSequence()
		}
		if number := ev.GetTransition().GetNumber(); number != 0 {
			told = number
		}
		if ev.GetIncarnation() > st.GetIncarnation() {
			c.report(bucket, fmt.Sprint(ev.GetSequence()), "it is of incarnation %d, and the newest is %d", ev.GetIncarnation(), st.GetIncarnation())
		}
	}
	if bytes != st.GetEventBytes() {
		c.report(bucket, "", "there are %d bytes, and counted are %d", bytes, st.GetEventBytes())
	}
	if told != 0 && told != st.GetTransitions() {
		c.report(bucket, "", "the newest transition that they tell of is %d of %d", told, st.GetTransitions())
	}
	if checkpoint != st.GetCheckpointSequence() {
		c.report(bucket, fmt.Sprint(checkpoint), "it is the newest checkpoint, and known is %d", st.GetCheckpointSequence())
	}
}
