package store

import (
	"errors"
	"fmt"
	"strings"

	bolt "go.etcd.io/bbolt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// Finding is one thing that is wrong in a database.
type Finding struct {
	// Bucket and Key of the record; Key is empty for what concerns a whole bucket. The keys of events are their sequences.
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

// CheckRecords reads every record of the database at path, which nobody may have open, and calls found for each that does
// not decode and for each invariant of this package that does not hold. It changes nothing. Run CheckFile, in a process of its
// own, before it: this one trusts the pages. Errors: as CheckFile; ErrFailedPrecondition for a file of a newer agboxd.
func CheckRecords(path string, found func(Finding)) error {
	if err := checkSize(path); err != nil {
		return err
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: checkLockTimeout})
	if err != nil {
		return openError(path, err)
	}
	err = db.View(func(tx *bolt.Tx) error {
		c := &checker{tx: tx, found: found}
		c.loader = loader{tx, c.corrupt}
		return c.run()
	})
	if err != nil {
		err = fmt.Errorf("check %s: %w", path, err)
	}
	return errors.Join(err, db.Close())
}

// checker looks at one database in one transaction. Its loader notes what does not decode.
type checker struct {
	loader
	tx    *bolt.Tx
	found func(Finding)
}

func (c *checker) corrupt(r Corrupt) { c.found(Finding{r.Bucket, r.Key, r.Err.Error()}) }

func (c *checker) say(bucket, key, format string, args ...any) {
	c.found(Finding{bucket, key, fmt.Sprintf(format, args...)})
}

func (c *checker) has(bucket, key string) bool { return get(c.tx, bucket, []byte(key)) != nil }

func (c *checker) run() error {
	if err := c.meta(); err != nil {
		return err
	}
	for _, bucket := range []string{bucketSandboxID, bucketExecID, bucketTrimmed, bucketDeletedAt, bucketUnswept, bucketUnproven, bucketAgentID} {
		c.each(bucket, func(key string, v []byte) {
			_, err := decodeInt(v)
			_ = c.noted(bucket, key, "", err) // it was told
		})
	}
	for _, id := range c.sandboxes() {
		c.sandbox(id)
	}
	c.each(bucketGivenUp, c.givenUp)
	c.each(bucketNames, c.name)
	c.each(bucketExecRefs, c.ref)
	c.agents()
	return nil
}

// each calls fn for every record of a bucket, in order. v dies with the transaction.
func (c *checker) each(bucket string, fn func(key string, v []byte)) {
	b := c.tx.Bucket([]byte(bucket))
	if b == nil {
		return
	}
	cur := b.Cursor()
	for k, v := cur.First(); k != nil; k, v = cur.Next() {
		fn(string(k), v)
	}
}

func (c *checker) meta() error {
	schema, err := decodeInt(get(c.tx, bucketMeta, []byte(keySchema)))
	_ = c.noted(bucketMeta, keySchema, "", err) // it was told
	if err == nil {
		if err := CheckSchema(schema); err != nil {
			return err
		}
	}
	var instance storev1.Instance
	err = decode(get(c.tx, bucketMeta, []byte(keyInstance)), &instance)
	if c.noted(bucketMeta, keyInstance, "", err) == nil && instance.GetUuid() == "" {
		c.say(bucketMeta, keyInstance, "there is no UUID in it")
	}
	for _, key := range []string{keyEngineMarker, keyRebuild, keyLineage, keyEpoch} {
		if v := get(c.tx, bucketMeta, []byte(key)); v != nil {
			_, err := decodeInt(v)
			_ = c.noted(bucketMeta, key, "", err) // it was told
		}
	}
	if v := get(c.tx, bucketMeta, []byte(keyEngineIdentity)); v != nil {
		_ = c.noted(bucketMeta, keyEngineIdentity, "", decode(v, &storev1.EngineIdentity{})) // noted reports it
	}
	_ = c.drain() // it was told
	if v := get(c.tx, bucketMeta, []byte(keyClock)); v != nil {
		_ = c.noted(bucketMeta, keyClock, "", decode(v, &storev1.ClockRecord{})) // noted reports it
	}
	return nil
}

// sandboxes returns every ID that a record but a reservation speaks of.
func (c *checker) sandboxes() []string {
	var ids []string
	seen := map[string]bool{}
	add := func(id string) {
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	for _, bucket := range []string{bucketConfig, bucketDesired, bucketState, bucketProgress, bucketTrimmed, bucketDeletedAt} {
		c.each(bucket, func(key string, _ []byte) { add(key) })
	}
	_ = c.tx.ForEach(func(name []byte, _ *bolt.Bucket) error { // fn returns no error
		for _, prefix := range []string{prefixEvents, prefixExecConfig, prefixExecDesired, prefixExecStatus} {
			if id, ok := strings.CutPrefix(string(name), prefix); ok {
				add(id)
			}
		}
		return nil
	})
	return ids
}

// name: it is held by a live sandbox that carries it and that nobody asked to delete.
func (c *checker) name(name string, v []byte) {
	var ref storev1.NameRef
	if err := decode(v, &ref); c.noted(bucketNames, name, "", err) != nil {
		return
	}
	id := ref.GetSandboxId()
	var d storev1.Desired
	err := decode(get(c.tx, bucketDesired, []byte(id)), &d)
	switch {
	case !c.has(bucketDesired, id) || c.has(bucketDeletedAt, id):
		c.say(bucketNames, name, "it is held by sandbox %q, which is not there", id)
	case err != nil: // told with the sandbox
	case d.GetName() != name:
		c.say(bucketNames, name, "it is held by sandbox %s, whose name is %q", id, d.GetName())
	case d.GetRunState() == storev1.RunState_RUN_STATE_DELETE:
		c.say(bucketNames, name, "it is held by sandbox %s, which is to be deleted", id)
	}
}

// givenUp: it is of a live sandbox.
func (c *checker) givenUp(id string, v []byte) {
	_ = c.noted(bucketGivenUp, id, "", decode(v, &storev1.GivenUp{})) // it was told
	if !c.has(bucketDesired, id) || c.has(bucketDeletedAt, id) {
		c.say(bucketGivenUp, id, "an operator confirmed that it vanished, and it is not live")
	}
}

// ref: the exec is where its reference says.
func (c *checker) ref(execID string, v []byte) {
	var ref storev1.ExecRef
	if err := decode(v, &ref); c.noted(bucketExecRefs, execID, "", err) != nil {
		return
	}
	if !c.has(prefixExecConfig+ref.GetSandboxId(), execID) {
		c.say(bucketExecRefs, execID, "sandbox %q has no such exec", ref.GetSandboxId())
	}
}
