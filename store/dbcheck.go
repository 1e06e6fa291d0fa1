package store

import (
	"errors"
	"fmt"
	"strings"

	bolt "go.etcd.io/bbolt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
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
// decode and for each violated invariant of this package. It changes nothing. Run CheckFile in a child process before it, because
// CheckRecords trusts the pages. Errors: as CheckFile; ErrFailedPrecondition for a file of a newer agboxd.
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

// checker checks one database in one transaction. Its loader reports records that do not decode.
type checker struct {
	loader
	tx    *bolt.Tx
	found func(Finding)
}

func (c *checker) corrupt(r Corrupt) { c.found(Finding{r.Bucket, r.Key, r.Err.Error()}) }

func (c *checker) report(bucket, key, format string, args ...any) {
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
			_ = c.noted(bucket, key, "", err) // noted reports it
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

// each calls fn for every record of a bucket, in order. v is valid until the transaction ends.
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
	_ = c.noted(bucketMeta, keySchema, "", err) // noted reports it
	if err == nil {
		if err := CheckSchema(schema); err != nil {
			return err
		}
	}
	var instance storev1.Instance
	err = decode(get(c.tx, bucketMeta, []byte(keyInstance)), &instance)
	if c.noted(bucketMeta, keyInstance, "", err) == nil && instance.GetUuid() == "" {
		c.report(bucketMeta, keyInstance, "there is no UUID in it")
	}
	for _, key := range []string{keyEngineMarker, keyRebuild, keyLineage, keyEpoch} {
		if v := get(c.tx, bucketMeta, []byte(key)); v != nil {
			_, err := decodeInt(v)
			_ = c.noted(bucketMeta, key, "", err) // noted reports it
		}
	}
	if v := get(c.tx, bucketMeta, []byte(keyEngineIdentity)); v != nil {
		_ = c.noted(bucketMeta, keyEngineIdentity, "", decode(v, &storev1.EngineIdentity{})) // noted reports it
	}
	_ = c.drain() // the loader reports it
	if v := get(c.tx, bucketMeta, []byte(keyClock)); v != nil {
		_ = c.noted(bucketMeta, keyClock, "", decode(v, &storev1.ClockRecord{})) // noted reports it
	}
	return nil
}

// sandboxes returns every sandbox ID that occurs in a record other than a reservation.
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

// name checks that a name is held by a live sandbox that has it and whose delete was not requested.
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
		c.report(bucketNames, name, "it is held by sandbox %q, which is not there", id)
	case err != nil: // reported with the sandbox
	case d.GetName() != name:
		c.report(bucketNames, name, "it is held by sandbox %s, whose name is %q", id, d.GetName())
	case d.GetRunState() == storev1.RunState_RUN_STATE_DELETE:
		c.report(bucketNames, name, "it is held by sandbox %s, which is to be deleted", id)
	}
}

// givenUp checks that an operator's confirmation concerns a live sandbox.
func (c *checker) givenUp(id string, v []byte) {
	_ = c.noted(bucketGivenUp, id, "", decode(v, &storev1.GivenUp{})) // noted reports it
	if !c.has(bucketDesired, id) || c.has(bucketDeletedAt, id) {
		c.report(bucketGivenUp, id, "an operator confirmed that it vanished, and it is not live")
	}
}

// ref checks that the exec is in the sandbox that its reference names.
func (c *checker) ref(execID string, v []byte) {
	var ref storev1.ExecRef
	if err := decode(v, &ref); c.noted(bucketExecRefs, execID, "", err) != nil {
		return
	}
	if !c.has(prefixExecConfig+ref.GetSandboxId(), execID) {
		c.report(bucketExecRefs, execID, "sandbox %q has no such exec", ref.GetSandboxId())
	}
}
